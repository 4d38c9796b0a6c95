{{- /* One object of a manifest, in the release's namespace, with the part's values laid over its pods. */ -}}
{{- define "faultlens.placed" -}}
{{- $thing := .thing }}
{{- if eq (default "" $thing.metadata.namespace) "faultlens" }}
{{- $_ := set $thing.metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- range $thing.subjects }}
{{- $_ := set . "namespace" $.root.Release.Namespace }}
{{- end }}
{{- if has $thing.kind (list "DaemonSet" "Deployment" "StatefulSet") }}
{{- if hasKey .part "replicas" }}
{{- $_ := set $thing.spec "replicas" .part.replicas }}
{{- end }}
{{- $pod := $thing.spec.template.spec }}
{{- range $at, $container := concat (default list $pod.initContainers) $pod.containers }}
{{- include "faultlens.container" (dict "root" $.root "part" $.part "container" $container) }}
{{- end }}
{{- $main := first $pod.containers }}
{{- $_ := set $main "args" (concat $main.args .part.args) }}
{{- if .root.Values.kafka.secret }}
{{- $secret := dict "name" "kafka" "secret" (dict "secretName" .root.Values.kafka.secret) }}
{{- $_ := set $pod "volumes" (append $pod.volumes $secret) }}
{{- end }}
{{- $_ := set $thing.spec.template "spec" (mergeOverwrite $pod (deepCopy .part.pod)) }}
{{- end }}
---
{{ toYaml $thing }}
{{ end }}

{{- /* A container: our image and its resources; one that speaks to Kafka learns how. */ -}}
{{- define "faultlens.container" -}}
{{- $container := .container }}
{{- if eq $container.image "faultlens" }}
{{- $_ := set $container "image" .root.Values.image }}
{{- end }}
{{- with index .part.resources $container.name }}
{{- $_ := set $container "resources" (mergeOverwrite (default dict $container.resources) (deepCopy .)) }}
{{- end }}
{{- range $known := default list $container.env }}
{{- if eq $known.name "FAULTLENS_BROKERS" }}
{{- $env := $container.env }}
{{- range $name, $value := $.root.Values.kafka.env }}
{{- $env = append $env (dict "name" $name "value" $value) }}
{{- end }}
{{- $_ := set $container "env" $env }}
{{- if $.root.Values.kafka.secret }}
{{- $mount := dict "name" "kafka" "mountPath" "/run/secrets/kafka" "readOnly" true }}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
