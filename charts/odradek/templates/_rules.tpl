{{- /*
What the operator does in a namespace that it watches; `e2e_tests/test_chart_rights.py` asks the API
server about every line, and runs the operator with exactly these rights. No Secret, no exec, no
Role: but whoever makes StatefulSets can mount what is in their namespace.
*/}}
{{- define "odradek.rules" -}}
- apiGroups: [odradek.dev]
  resources: [kafkaclusters]
  verbs: [get, list, watch]
- apiGroups: [odradek.dev]
  resources: [topics]
  verbs: [get, list, watch, patch] # patch: the finalizer of deletionPolicy Delete
- apiGroups: [odradek.dev]
  resources: [kafkaclusters/status, topics/status]
  verbs: [patch]
# Owner references that hold the deletion of their owner, where that is enforced (OpenShift).
- apiGroups: [odradek.dev]
  resources: [kafkaclusters/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [list, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [list, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
