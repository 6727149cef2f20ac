use jiff::Span;

use super::*;

const NAME: &str = "webhook.koord.svc";

fn now() -> Timestamp {
    "2026-11-16T10:00:00Z".parse().unwrap()
}

fn in_days(days: i64) -> Timestamp {
    now().checked_add(Span::new().hours(days * 24)).unwrap()
}

fn made() -> Artifacts {
    Artifacts::default().renew(NAME, now(), 7).unwrap()
}

fn parsed<T>(pem: &str, look: impl FnOnce(&x509_parser::certificate::X509Certificate<'_>) -> T) -> T {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    look(&x509_parser::parse_x509_certificate(&der).unwrap().1)
}

fn names(pem: &str) -> Vec<String> {
    parsed(pem, |certificate| {
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        names.value.general_names.iter().map(ToString::to_string).collect()
    })
}

#[test]
fn new_certificates() {
    let artifacts = made();
    assert_eq!(artifacts.check(NAME, now()), Ok(()));
    assert_eq!(validity(&artifacts.ca_cert), Some((now(), in_days(3650))));
    assert_eq!(validity(&artifacts.cert), Some((now(), in_days(3650))));
    parsed(&artifacts.ca_cert, |ca| {
        assert_eq!(ca.subject().to_string(), "CN=webhook-cert-ca");
        assert!(ca.is_ca());
        let usage = ca.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && usage.key_encipherment() && usage.key_cert_sign());
    });
    parsed(&artifacts.cert, |cert| {
        assert_eq!(cert.subject().to_string(), format!("CN={NAME}"));
        assert!(cert.extended_key_usage().unwrap().unwrap().value.server_auth);
        assert_eq!(cert.serial.to_string(), "3");
    });
    assert_eq!(names(&artifacts.cert), ["DNSName(localhost)", &format!("DNSName({NAME})")]);
    let files: Vec<&str> = artifacts.files().iter().map(|(name, _)| *name).collect();
    assert_eq!(files, ["ca-key.pem", "ca-cert.pem", "cert.pem", "key.pem", "tls.crt", "tls.key"]);
    let text = format!("{artifacts:?}");
    assert!(!text.contains("PRIVATE"), "{text}");
}

#[test]
fn certificates_for_addresses() {
    let artifacts = Artifacts::default().renew("10.0.0.5", now(), 1).unwrap();
    assert_eq!(artifacts.check("10.0.0.5", now()), Ok(()), "manager#14.2.H10");
    assert_eq!(names(&artifacts.cert)[0], "DNSName(localhost)", "manager#14.2.H10");
    assert_eq!(names(&artifacts.cert).len(), 2, "manager#14.2.H10");
    assert_eq!(artifacts.check("localhost", now()), Ok(()), "for the readiness check");
}

#[test]
fn what_is_renewed_when() {
    let valid = made();
    let other = made();
    for (name, artifacts, server_name, at, is_good, keeps_authority) in [
        ("fresh", valid.clone(), NAME, 0, true, true),
        ("nothing there", Artifacts::default(), NAME, 0, false, false),
        ("manager#14.2.H4, another name", valid.clone(), "other.koord.svc", 0, false, true),
        ("manager#14.2.H12", Artifacts { key: other.key.clone(), ..valid.clone() }, NAME, 0, false, true),
        ("no key", Artifacts { key: String::new(), ..valid.clone() }, NAME, 0, false, true),
        ("junk", Artifacts { cert: "junk".into(), ..valid.clone() }, NAME, 0, false, true),
        (
            "another authority",
            Artifacts { ca_cert: other.ca_cert.clone(), ..valid.clone() },
            NAME,
            0,
            false,
            false,
        ),
        (
            "authority without key",
            Artifacts { ca_key: String::new(), ..valid.clone() },
            "x.svc",
            0,
            false,
            false,
        ),
        ("seven months before the end", valid.clone(), NAME, 3650 - 210, true, false),
        ("five months before the end", valid.clone(), NAME, 3650 - 150, false, false),
        ("not yet", valid.clone(), NAME, -200, false, false),
    ] {
        let at = in_days(at);
        assert_eq!(artifacts.check(server_name, at).is_ok(), is_good, "{name}");
        let renewed = artifacts.renew(server_name, at, 9).unwrap();
        assert_eq!(renewed.check(server_name, at), Ok(()), "{name}");
        let kept = renewed.ca_cert == artifacts.ca_cert && renewed.ca_key == artifacts.ca_key;
        assert_eq!(kept, keeps_authority, "{name}");
        assert_ne!(renewed.cert, artifacts.cert, "{name}");
    }
    // Two years before its end the authority still signs; the server's certificate may outlive it.
    let late = in_days(3650 - 730);
    let renewed = valid.renew("other.svc", late, 9).unwrap();
    assert_eq!(renewed.ca_cert, valid.ca_cert);
    assert_eq!(validity(&renewed.cert).unwrap().0, now(), "valid from when its authority is");
}

#[test]
fn faults_name_the_file() {
    let valid = made();
    for (artifacts, name, want) in [
        (Artifacts::default(), NAME, "cert.pem holds no usable PEM: it holds no certificate"),
        (Artifacts { key: "x".into(), ..valid.clone() }, NAME, "key.pem holds no usable PEM: "),
        (Artifacts { key: made().key, ..valid.clone() }, NAME, "key.pem does not belong to cert.pem: "),
        (valid, "else.svc", "cert.pem is not good for else.svc in 182 days: "),
    ] {
        let text = artifacts.check(name, now()).unwrap_err().to_string();
        assert!(text.starts_with(want), "{text}");
    }
}

#[test]
fn files_read_and_written() {
    let artifacts = made();
    let files = artifacts.files();
    let find =
        |name: &str| files.iter().find(|(file, _)| *file == name).map(|(_, text)| text.as_bytes().to_vec());
    assert_eq!(Artifacts::read(find), artifacts);
    // tls.crt and tls.key are written for the server and never read.
    let junk = |name: &str| if name.starts_with("tls") { Some(b"junk".to_vec()) } else { find(name) };
    assert_eq!(Artifacts::read(junk), artifacts, "manager#14.2.H11");
    assert_eq!(Artifacts::read(|_| None), Artifacts::default());
}
