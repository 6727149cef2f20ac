use super::*;
use crate::webhook::certificates::Artifacts;

const NAME: &str = "webhook.koord.svc";
const MADE: &str = "2026-11-16T10:00:00Z";

fn made() -> Artifacts {
    Artifacts::default().renew(NAME, at(MADE), 7).unwrap()
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// Reads a directory with these files.
fn read(files: &[(&str, &str)], name: &str, now: &str) -> Result<Given, String> {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in files {
        fs::write(dir.path().join(file), text).unwrap();
    }
    let place = format!("{}/", dir.path().display());
    Given::read(dir.path(), name, at(now)).map_err(|error| error.to_string().replace(&place, ""))
}

#[test]
fn what_is_good_now_is_taken() {
    let pair = made();
    let whole = [(TLS_CERT, &*pair.cert), (TLS_KEY, &*pair.key), (CA, &*pair.ca_cert)];
    let given = read(&whole, NAME, MADE).unwrap();
    assert_eq!((&given.cert, &given.key), (&pair.cert, &pair.key));
    assert_eq!(given.ca_cert.as_ref(), Some(&pair.ca_cert));
    assert!(!format!("{given:?}").contains("PRIVATE"));
    assert_eq!(read(&whole, NAME, "2036-11-13T09:00:00Z"), Ok(given), "up to the last hour");
    assert_eq!(read(&whole[..2], NAME, MADE).unwrap().ca_cert, None);
    let blank = [whole[0], whole[1], (CA, "\n")];
    assert_eq!(read(&blank, NAME, MADE).unwrap().ca_cert, None, "as issuers without an authority leave it");
}

#[test]
fn faults_name_the_file_and_what_is_wrong_with_it() {
    let (pair, other) = (made(), made());
    let whole = [(TLS_CERT, &*pair.cert), (TLS_KEY, &*pair.key), (CA, &*pair.ca_cert)];
    let [cert, key, ca] = whole;
    let late = "2036-11-13T11:00:00Z";
    for (files, name, now, want) in [
        (vec![key, ca], NAME, MADE, "cannot read tls.crt"),
        (vec![cert, ca], NAME, MADE, "cannot read tls.key"),
        (vec![(TLS_CERT, "x"), key, ca], NAME, MADE, "tls.crt holds no PEM certificate that can be read"),
        (vec![cert, (TLS_KEY, "x"), ca], NAME, MADE, "tls.key holds no PEM private key that can be read: "),
        (vec![cert, (TLS_KEY, &other.key), ca], NAME, MADE, "tls.key does not belong to tls.crt: "),
        (vec![cert, key, (CA, "x")], NAME, MADE, "ca.crt holds no PEM certificate that can be read"),
        (
            vec![cert, key, (CA, &other.ca_cert)],
            NAME,
            MADE,
            "tls.crt is not vouched for by ca.crt: invalid peer certificate: ",
        ),
        (
            vec![cert, key, ca],
            NAME,
            late,
            "tls.crt is valid from 2026-11-16T10:00:00Z until 2036-11-13T10:00:00Z, and now it is 2036-11-13T11:00:00Z",
        ),
        (vec![cert, key], NAME, "2026-11-16T09:00:00Z", "tls.crt is valid from "),
        (vec![cert, key, ca], "else.svc", MADE, "tls.crt is not for else.svc: "),
        (vec![cert, key], "else.svc", MADE, "tls.crt is not for else.svc: "),
    ] {
        let text = read(&files, name, now).unwrap_err();
        assert!(text.starts_with(want), "{text}\n{want}");
    }
}
