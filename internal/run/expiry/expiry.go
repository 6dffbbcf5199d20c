// Package expiry lists the credentials of a cluster that expire, each with the command that renews it: the
// kubeconfig and the talosconfig, the authorities, those by which webhooks are trusted, and the tokens with
// which castle reaches the platform and the secret stores. The states have most of them. The rest is read
// from the systems, side by side and with a time limit. What castle could not read is in the list with the
// reason: nothing counts as valid that nobody has looked at.
package expiry

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// The states of an Item.
const (
	Valid      = "valid"
	Soon       = "expires_soon"
	Expired    = "expired"
	Never      = "never_expires"
	NotChecked = "not_checked"
)

// Item is a credential.
type Item struct {
	Name    string    `json:"name"` // client certificate of the kubeconfig
	State   string    `json:"state"`
	Issued  time.Time `json:"issued,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Reason  string    `json:"reason,omitempty"` // why it is not checked
	Note    string    `json:"note,omitempty"`
	Fix     string    `json:"fix,omitempty"` // what renews it
}

// early is how long before the end castle warns; less of something whose whole life is short.
const early = 30 * 24 * time.Hour

// at returns the item with its state at a time.
func (i Item) at(now time.Time) Item {
	soon := early
	if life := i.Expires.Sub(i.Issued); !i.Issued.IsZero() {
		soon = min(soon, life/3)
	}
	switch left := i.Expires.Sub(now); {
	case i.Reason != "":
		i.State = NotChecked
	case i.Expires.IsZero():
		i.State = Never
	case left <= 0:
		i.State = Expired
	case left <= soon:
		i.State = Soon
	default:
		i.State = Valid
	}
	return i
}

// Warns reports whether the item has expired, or does so soon.
func (i Item) Warns() bool { return i.State == Soon || i.State == Expired }

// String is the warning, without the fix.
func (i Item) String() string {
	verb := map[bool]string{true: "has expired", false: "expires"}[i.State == Expired]
	return fmt.Sprintf("the %s %s on %s", i.Name, verb, i.Expires.UTC().Format(time.DateOnly))
}

// answerTime bounds what is read from the systems.
const answerTime = 10 * time.Second

// Look lists the credentials of r's cluster; without a cluster there are none. states are the last known
// ones, whose outputs r has. Only if logsIn is set, castle logs in to secret stores: that costs a use of the
// credential, and some have a limit.
func Look(ctx context.Context, r *run.Run, states map[*config.Stage]*state.State, logsIn bool) []Item {
	ctx, stop := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %s", answerTime))
	defer stop()
	all := recorded(r, states)
	if len(all) == 0 {
		return nil
	}
	reads := []func(context.Context, *run.Run) []Item{webhooks, platformTokens}
	if logsIn {
		reads = append(reads, secretStores)
	}
	for _, more := range run.Each(reads, func(read func(context.Context, *run.Run) []Item) []Item {
		return read(ctx, r)
	}) {
		all = append(all, more...)
	}
	for n, i := range all {
		i = i.at(time.Now())
		for _, text := range []*string{&i.Name, &i.Reason, &i.Note, &i.Fix} {
			*text = foreign.OneLine(r.Cluster.Masker.Hide(*text))
		}
		all[n] = i
	}
	return all
}

// recorded lists what the states have; nothing without a cluster.
func recorded(r *run.Run, states map[*config.Stage]*state.State) (all []Item) {
	target, c := r.Outputs.Target(), r.Cluster
	if target.Kubeconfig == nil && target.Talosconfig == nil {
		return nil
	}
	renews, rotates := c.Command("credentials renew"), c.Command("recreate")+" --rotate"
	add := func(name, fix string, texts ...[]byte) {
		all = append(all, ofCertificates(Item{Name: name, Fix: fix}, texts...))
	}
	add("client certificate of the kubeconfig", renews, kube.ClientCertificates(target.Kubeconfig)...)
	add("client certificate of the talosconfig", renews, talos.ClientCertificates(target.Talosconfig)...)
	add("CA of Kubernetes", rotates, kube.Authorities(target.Kubeconfig)...)
	add("CA of Talos", rotates, talos.Authorities(target.Talosconfig)...)
	for _, s := range c.Config.Stages {
		if _, has := s.Variables["vault_database_logins"]; has && states[s].Exists {
			all = append(all, Item{Name: "passwords of database users", Fix: c.Command("rotate") +
				" passwords", Note: "two login roles alternate, so no login fails"})
		}
		for _, res := range states[s].Managed() {
			if res.Type != "talos_machine_secrets" {
				continue
			}
			add("CA of etcd", rotates, authority(res, "etcd"))
			add("CA of the aggregated APIs", rotates, authority(res, "k8s_aggregator"))
			key := ofCertificates(Item{}, authority(res, "k8s")) // a key has no date: one apply makes both
			key = Item{Name: "key of the ServiceAccounts", Fix: rotates, Issued: key.Issued,
				Note: "it cannot be rotated without a gap: Talos 1.13 accepts one key, and all tokens end " +
					"with it"}
			if !key.Issued.IsZero() {
				key.Note = fmt.Sprintf("made on %s, as the CA of Kubernetes was; %s",
					key.Issued.UTC().Format(time.DateOnly), key.Note)
			}
			all = append(all, key)
		}
	}
	return all
}

// authority is the certificate of one of the authorities that a talos_machine_secrets has made.
func authority(res state.Resource, name string) []byte {
	var at any = res.Attributes
	for _, name := range []string{"machine_secrets", "certs", name, "cert"} {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	text, _ := at.(string)
	decoded, _ := base64.StdEncoding.DecodeString(text) //nolint:errcheck // then it is no certificate
	return decoded
}

// ofCertificates dates an item by the certificate that ends last: while they are renewed, one may be old.
func ofCertificates(i Item, texts ...[]byte) Item {
	i.Reason = "there is no certificate in it"
	for _, text := range texts {
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(i.Expires) {
				i.Issued, i.Expires, i.Reason = c.NotBefore, c.NotAfter, ""
			}
		}
	}
	return i
}
