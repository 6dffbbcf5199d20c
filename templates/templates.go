// Package templates is what a user starts from: `castle new` renders the files of proxmox-talos/,
// hcloud-talos/, metal-talos/ or metal-bare/ with the user's answers into
// clusters/<cluster>/<platform>/, and with --gitops those of gitops/ into the repository that Flux
// reads, where CLUSTER stands for the cluster's folder. It is
// embedded, so that it is at hand wherever the binary is; a castle repository's own
// templates/ shadows it.
//
// The files have ${answer} where the user decides, in the language of Terraform's templatefile;
// `castle new --help` lists the answers. next.txt is not copied but shown: what to do next.
package templates

import "embed"

// Files holds the templates by name: "proxmox-talos/cluster.hcl".
//
//go:embed all:proxmox-talos all:hcloud-talos all:metal-talos all:metal-bare all:gitops
var Files embed.FS
