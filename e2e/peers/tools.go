//go:build tools

// Package peers holds Go programs that tests talk to. This file keeps modules that peers to come
// need in go.mod.
package peers

import _ "k8s.io/client-go/tools/leaderelection"
