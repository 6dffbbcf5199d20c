package kube

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// A Secret is never kept, and what is in it may not come out through a side
// door either: a log that prints a password, an event, an annotation. So the
// values of all Secrets are read first, only to hide them in everything else.
// Where they cannot be read, no log is kept.

// shortestPart is the least length of a part of a Secret's value, such as one
// setting of a configuration file, that is hidden on its own.
const shortestPart = 8

// readPrivate learns what must not be seen. Helm's own Secrets are left out:
// they hold whole charts, which are no secret, and the values they were given,
// which castle's own masking knows.
func (q *inquiry) readPrivate(ctx context.Context, bound time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	body, err := q.a.raw.Get().AbsPath("/api/v1/secrets").Param("fieldSelector", "type!=helm.sh/release.v1").
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		if answered(err) {
			q.miss("secrets, to hide what is in them", err)
		}
		return err
	}
	var secrets struct {
		Items []struct{ Data map[string][]byte }
	}
	if json.Unmarshal(body, &secrets) != nil {
		return nil // without them no log is kept
	}
	for _, s := range secrets.Items {
		for key, value := range s.Data {
			if key != "namespace" { // of a ServiceAccount's token: the Secret's own namespace
				q.private = append(q.private, parts(string(value))...)
			}
		}
	}
	q.sealed = true
	return nil
}

// parts are the strings of a Secret's value that have to be hidden: all of a
// short text or a key, and the single values of a file of settings, whose other
// words occur everywhere.
func parts(value string) []string {
	value = strings.TrimSpace(value)
	var document any
	switch {
	case strings.Contains(value, "-----BEGIN"):
		return []string{value}
	case strings.HasPrefix(value, "{") && json.Unmarshal([]byte(value), &document) == nil:
		return leaves(document)
	case !strings.Contains(value, "\n"):
		return []string{value}
	}
	var all []string
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		if at := strings.IndexAny(line, ":="); at >= 0 {
			line = line[at+1:]
		}
		if line = strings.Trim(strings.TrimSpace(line), `"'`); len(line) >= shortestPart {
			all = append(all, line)
		}
	}
	return all
}

func leaves(document any) []string {
	var all []string
	switch x := document.(type) {
	case map[string]any:
		for _, inner := range x {
			all = append(all, leaves(inner)...)
		}
	case []any:
		for _, inner := range x {
			all = append(all, leaves(inner)...)
		}
	case string:
		if len(x) >= shortestPart {
			all = append(all, x)
		}
	}
	return all
}

// hider hides the Secrets' data and what looks like a credential. A value that
// is also the name of something that is shown, such as a database's, is no secret.
func (q *inquiry) hider() func(string) string {
	names, masker := q.names(), &secret.Masker{}
	var hidden []string
	for _, value := range q.private {
		if !strings.Contains(names, value) {
			hidden = append(hidden, value)
		}
	}
	masker.Add(hidden...)
	return func(text string) string { return masker.Hide(secret.HideLikely(text)) }
}
