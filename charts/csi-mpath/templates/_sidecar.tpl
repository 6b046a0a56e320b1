{{/* A sidecar of the controller. dict "root" "name" "args" */}}
{{- define "csi-mpath.sidecar" -}}
{{- $it := index .root.Values.sidecars .name -}}
- name: csi-{{ .name }}
  image: {{ printf "%s:%s" $it.image.repository $it.image.tag | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
  - --csi-address=/csi/csi.sock
  - --leader-election
  - --leader-election-namespace=$(NAMESPACE)
  {{- range .args }}
  - {{ . }}
  {{- end }}
  - --v={{ $it.logLevel }}
  {{- range $it.extraArgs }}
  - {{ . | quote }}
  {{- end }}
  env:
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  securityContext: {{- include "csi-mpath.restricted" .root | nindent 4 }}
  resources: {{- toYaml $it.resources | nindent 4 }}
  volumeMounts:
  - {name: socket, mountPath: /csi}
{{- end -}}
