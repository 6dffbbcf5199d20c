// Package stages is the library: every stage that castle brings, as ordinary
// Terraform root modules with one stage.hcl each. They are embedded, so one
// binary is enough to raise a cluster; a castle repository that has a folder of
// the same name below its own stages/ shadows the one in here.
//
// The patterns name the layers, not "*", so that this file and README.md stay out, and they say
// "all:" because go:embed otherwise skips what begins with a dot or an
// underscore, such as a chart's _helpers.tpl.
package stages

import "embed"

// Library holds the stages by layer and name: "networking/metallb/main.tf".
//
//go:embed all:secrets all:platform all:engine all:networking all:storage all:gitops
var Library embed.FS
