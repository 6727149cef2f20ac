//! tmp
pub(super) async fn sync(_: &super::shell::Shell, _: &str) -> super::shell::Next {
    Ok(None)
}
