// Package templates is what a user starts from: cluster/ is copied to
// clusters/<cluster>/<platform>/ and edited. It is embedded, so that it is at
// hand wherever the binary is; a castle repository's own templates/ shadows it.
package templates

import "embed"

// Files holds the templates by name: "cluster/cluster.hcl".
//
//go:embed all:cluster
var Files embed.FS
