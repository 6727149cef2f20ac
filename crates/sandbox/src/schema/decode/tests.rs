use serde_json::json;

use super::super::builtin;
use super::*;

fn read(kind: &str, body: &str) -> Result<Decoded, DecodeError> {
    let group = if kind == "Deployment" { "apps" } else { "" };
    let schema = builtin::by_name(&builtin::type_name(group, "v1", kind)).unwrap();
    decode(body.as_bytes(), schema, kind)
}

/// Texts as a real v1.35.4 API server answers them.
#[test]
fn wrong_shapes_in_gos_words() {
    for (kind, body, want) in [
        (
            "Pod",
            r#"{"spec":{"containers":[{"name":"a","image":"b","ports":[{"containerPort":"x"}]}]}}"#,
            "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":"x"}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "Pod",
            r#"{"spec":[]}"#,
            "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            "Pod",
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "Pod",
            r#"{"metadata":{"creationTimestamp":"x"}}"#,
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"x"}}}]}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "Pod",
            r#"{"spec":{"hostNetwork":"x","priority":1.5}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            "Pod",
            r#"{"spec":{"priority":1.5}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            r#"{"spec":{"priority":99999999999}}"#,
            "json: cannot unmarshal number 99999999999 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            r#"{"spec":{"securityContext":{"runAsUser":true}}}"#,
            "json: cannot unmarshal bool into Go struct field PodSecurityContext.spec.securityContext.runAsUser of type int64",
        ),
        (
            "Pod",
            r#"{"spec":{"tolerations":{"a":1}}}"#,
            "json: cannot unmarshal object into Go struct field PodSpec.spec.tolerations of type []v1.Toleration",
        ),
        (
            "Pod",
            r#"{"spec":{"tolerations":["a"]}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.tolerations of type v1.Toleration",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":true}}}]}}"#,
            "json: cannot unmarshal bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":[{"name":"a","livenessProbe":{"httpGet":{"port":1.5}}}]}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        ("Secret", r#"{"data":{"a":"!!"}}"#, "illegal base64 data at input byte 0"),
        (
            "Secret",
            r#"{"data":{"a":1}}"#,
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        ),
        (
            "ConfigMap",
            r#"{"data":{"a":{}}}"#,
            "json: cannot unmarshal object into Go struct field ConfigMap.data of type string",
        ),
        (
            "ConfigMap",
            r#"{"metadata":"a"}"#,
            "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            "ConfigMap",
            r#"{"metadata":{"managedFields":{}}}"#,
            "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.managedFields of type []v1.ManagedFieldsEntry",
        ),
        (
            "Deployment",
            r#"{"spec":{"replicas":"1","template":{"spec":{"containers":[{"ports":[{"containerPort":"x"}]}]}}}}"#,
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            r#"{"spec":{"template":{"spec":{"containers":[{"env":[{"valueFrom":{"configMapKeyRef":{"name":1}}}]}]}}}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMapKeySelector.spec.template.spec.containers.env.valueFrom.configMapKeyRef.LocalObjectReference.name of type string",
        ),
    ] {
        assert_eq!(read(kind, body), Err(DecodeError::Type(want.into())), "{body}");
    }
}

#[test]
fn unknown_and_repeated_fields_in_order() {
    let body =
        r#"{"metadata":{"name":"z","foo":1,"labels":{"a":"1","a":"2"}},"bar":1,"type":"a","type":"b"}"#;
    let decoded = read("Secret", body).unwrap();
    assert_eq!(decoded.value, json!({"metadata": {"name": "z", "labels": {"a": "2"}}, "type": "b"}));
    assert_eq!(
        strict_error(&decoded.strict),
        "strict decoding error: unknown field \"metadata.foo\", duplicate field \"metadata.labels.a\", \
         unknown field \"bar\", duplicate field \"type\""
    );
    let decoded = decode_untyped(br#"{"spec":{"a":1,"a":[{"b":1,"b":2}]}}"#).unwrap();
    assert_eq!(decoded.value, json!({"spec": {"a": [{"b": 2}]}}));
    assert_eq!(decoded.strict, ["duplicate field \"spec.a\"", "duplicate field \"spec.a[0].b\""]);
}

/// Texts as a real v1.35.4 API server answers them.
#[test]
fn custom_resources() {
    let raw = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"type": "integer"},
        "map": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}}}}});
    let schema = super::super::crd::parse(&raw, "s").unwrap();
    let read = |body: &str| decode_custom(body.as_bytes(), &schema);
    let body = r#"{"metadata":{"name":"z","foo":1,"name":"y"},"zoo":1,
        "spec":{"n":1,"n":2,"b":1,"map":[{"name":"a","x":1}]}}"#;
    let decoded = read(body).unwrap();
    assert_eq!(decoded.value, json!({"metadata": {"name": "y"}, "spec": {"n": 2, "map": [{"name": "a"}]}}));
    assert_eq!(
        strict_error(&decoded.strict),
        "strict decoding error: duplicate field \"metadata.name\", duplicate field \"spec.n\", \
         unknown field \"metadata.foo\", unknown field \"spec.b\", unknown field \"spec.map[0].x\", \
         unknown field \"zoo\""
    );
    for (metadata, want) in [
        (
            r#"{"labels":{"a":1}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
        (r#""x""#, "json: cannot unmarshal string into Go value of type v1.ObjectMeta"),
        (
            r#"{"generation":"1"}"#,
            "json: cannot unmarshal string into Go struct field ObjectMeta.generation of type int64",
        ),
    ] {
        let body = format!("{{\"metadata\":{metadata}}}");
        assert_eq!(read(&body), Err(DecodeError::Type(want.into())), "{metadata}");
    }
}

#[test]
fn values_come_out_as_go_holds_them() {
    for (kind, body, want) in [
        (
            "Pod",
            json!({"spec": {"hostNetwork": false, "priority": 0, "nodeName": "", "tolerations": []}}),
            json!({"spec": {"priority": 0}}),
        ),
        (
            "Pod",
            json!({"spec": {"containers": [{"name": "", "resources": {"limits": {"cpu": "1000m", "memory": 1024}}}]}}),
            json!({"spec": {"containers": [{"name": "", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}]}}),
        ),
        (
            "Pod",
            json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05.9+01:00", "labels": {}, "annotations": null}}),
            json!({"metadata": {"creationTimestamp": "2026-01-02T02:04:05Z"}}),
        ),
        (
            "Deployment",
            json!({"spec": {"replicas": 0, "paused": false, "strategy": {}}}),
            json!({"spec": {"replicas": 0, "strategy": {}}}),
        ),
    ] {
        assert_eq!(read(kind, &body.to_string()).unwrap().value, want, "{body}");
    }
}

#[test]
fn complete_adds_what_go_always_writes() {
    let deployment = builtin::by_name(&builtin::type_name("apps", "v1", "Deployment")).unwrap();
    let mut value =
        json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    complete(&mut value, deployment);
    assert_eq!(
        value,
        json!({
            "metadata": {"name": "a"},
            "spec": {"selector": null, "strategy": {}, "template": {
                "metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}}},
            "status": {},
        })
    );
}

#[test]
fn syntax_errors_in_gos_words() {
    for (body, want) in [
        ("", "unexpected end of JSON input"),
        (r#"{"a":}"#, "invalid character '}' looking for beginning of value"),
        (r#"{"a":1"#, "unexpected end of JSON input"),
        (r#"{"a":1}x"#, "invalid character 'x' after top-level value"),
    ] {
        assert_eq!(read("Pod", body), Err(DecodeError::Syntax(want.into())), "{body}");
    }
}
