//! tmp
pub(super) async fn sync_claim(_: &super::shell::Shell, _: &str) -> super::shell::Next {
    Ok(None)
}
pub(super) async fn sync_volume(_: &super::shell::Shell, _: &str) -> super::shell::Next {
    Ok(None)
}
