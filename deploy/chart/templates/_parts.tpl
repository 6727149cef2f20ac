{{- /* What several templates have in common. */}}

{{- define "image" -}}
{{ with .root.Values.imageRepositoryHost }}{{ . }}/{{ end }}{{ .image.repository }}:{{ .image.tag }}
{{- end }}

{{- /* Koordinator's chart puts the value below `affinity`, so users wrote `nodeAffinity` into it; its name says otherwise. */}}
{{- define "nodeAffinity" -}}
{{- if hasKey . "nodeAffinity" }}
{{- toYaml . }}
{{- else }}
{{- toYaml (dict "nodeAffinity" .) }}
{{- end }}
{{- end }}
