//! The file that tells kubectl and every client where the cluster is and who they are.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::tls::Credential;

/// Everything a client needs, as YAML.
pub fn render(server: &str, authority: &str, client: &Credential) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: koord-sandbox\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {}\n\
         users:\n\
         - name: kubernetes-admin\n\
         \x20 user:\n\
         \x20   client-certificate-data: {}\n\
         \x20   client-key-data: {}\n\
         contexts:\n\
         - name: koord-sandbox\n\
         \x20 context:\n\
         \x20   cluster: koord-sandbox\n\
         \x20   user: kubernetes-admin\n\
         current-context: koord-sandbox\n",
        encode(authority),
        encode(&client.certificate),
        encode(&client.key)
    )
}
