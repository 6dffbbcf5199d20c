package rehearsal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gitops"
	"github.com/ephemeral-castle/castle/lab/charts"
	"github.com/ephemeral-castle/castle/lab/internal/network"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

// parseSources reads --source, as folders by URL.
func parseSources(texts []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range texts {
		url, folder, is := strings.Cut(text, "=")
		scheme, _, _ := strings.Cut(url, "://")
		if !is || scheme != "https" && scheme != "http" && scheme != "oci" {
			return nil, fmt.Errorf("--source %q: must be URL=DIR, with a URL of a Git or Helm repository "+
				"or an artifact that begins with https://, http:// or oci://", text)
		}
		folder, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--source %s: %s is no folder", url, folder)
		}
		all[repository(url)] = folder
	}
	return all, nil
}

// elsewhere finds the sources in Flux's repository that the lab lacks, and says how to bring them. Real
// controllers cannot decrypt another person's repository: they run on one only with --controllers real.
func (p *plan) elsewhere(hosts []string, notice func(string)) error {
	s := &p.Survey
	lacking := pulls{places: map[string][]gitops.Place{}}
	if folder := p.Options.Charts; folder != "" {
		var err error
		if lacking.pulled, err = charts.ReadFolder(folder); err != nil {
			return &UsageError{fmt.Errorf("--charts: %w", err)}
		}
	}
	if s.Repository == "" {
		return nil
	}
	if has, err := sources.Digest(s.Repository); err == nil && s.Digest != "" && s.Digest != has {
		notice(fmt.Sprintf("oci_digest pins %s, and the lab's artifact of %s is %s: Flux finds no other, so "+
			"rehearse with that one, or without oci_digest", s.Digest, s.Repository, has))
	}
	all, err := gitops.Read(gitops.Options{Folder: s.Repository, Path: s.Path, Source: s.SourceKind})
	var problems gitops.Problems
	if errors.As(err, &problems) { // castle check reports the others
		for _, one := range problems {
			if strings.Contains(one.Message, "is not in this repository") {
				p.remoteBase(one, notice)
			}
		}
	}
	for _, k := range all {
		for _, o := range k.Objects {
			_, encrypted := o.Object["sops"]
			if encrypted && k.Decrypts && p.Controllers != "" && p.Options.Controllers == "" {
				p.Controllers = ""
				notice(fmt.Sprintf("SOPS has encrypted %s, and a rehearsal lacks the key: the lab's doubles "+
					"of Flux's controllers run", o.At))
			}
			if o.GroupVersionKind().Group == "source.extensions.fluxcd.io" {
				notice(fmt.Sprintf("%s %s/%s (%s): the lab has no source-watcher, so what is made of its "+
					"artifacts never gets ready", o.GetKind(), o.GetNamespace(), o.GetName(), o.At))
			}
			url := repository(text(o, "url"))
			if o.GroupVersionKind().Group != "source.toolkit.fluxcd.io" || s.isAtHand(url, hosts) {
				continue
			}
			if folder := s.Sources[url]; folder != "" {
				if semver := text(o, "ref", "semver"); semver != "" {
					s.Tags = append(s.Tags, semver)
				}
				_, err := os.Stat(filepath.Join(folder, "index.yaml"))
				if helm := o.GetKind() == "HelmRepository"; helm != (err == nil) {
					notice(fmt.Sprintf("%s %s/%s (%s): %s is served from %s as a %s repository: index.yaml, "+
						"which a Helm repository has, decides", o.GetKind(), o.GetNamespace(), o.GetName(),
						o.At, url, folder, map[bool]string{true: "Git", false: "Helm"}[helm]))
				}
				continue
			}
			s.Missing = append(s.Missing, url)
			if lacking.add(o, all) {
				continue
			}
			hint := "the lab cannot serve it"
			if !strings.HasPrefix(url, "ssh") && o.GetKind() != "Bucket" {
				hint = "bring it with --source " + url + "=DIR"
			}
			notice(fmt.Sprintf("%s %s/%s (%s): %s is not at hand; %s", o.GetKind(), o.GetNamespace(),
				o.GetName(), o.At, cmp.Or(url, "its address"), hint))
		}
	}
	if len(lacking.places) > 0 {
		notice(lacking.String())
	}
	s.add(&survey{Network: network.Find(s.Missing)}) // the names of their servers resolve
	return nil
}

// remoteBase says that a resource of a kustomization.yaml is not at hand, and how to bring it. Only real
// controllers fetch one.
func (p *plan) remoteBase(problem gitops.Problem, notice func(string)) {
	name, _, _ := strings.Cut(problem.Message, " ")
	url := baseOf(name)
	switch {
	case url == "" || p.Controllers == "":
		notice("Flux's repository: " + problem.Error())
	case p.Survey.Sources[url] == "":
		p.Survey.Missing = append(p.Survey.Missing, url)
		notice(fmt.Sprintf("Flux's repository: %s: the base %s is not at hand; bring it with --source %s=DIR",
			problem.At, name, url))
	}
}

// baseOf returns the URL of the Git repository of a remote base, as kustomize reads it; "" for a file.
func baseOf(name string) string {
	name, query, _ := strings.Cut(strings.TrimPrefix(name, "git::"), "?")
	scheme, rest, is := strings.Cut(name, "://")
	if !is {
		scheme, rest = "https", name
	}
	rest, _, within := strings.Cut(rest, "//")
	parts := strings.Split(rest, "/")
	hosted := parts[0] == "github.com" && len(parts) > 2
	switch {
	case scheme == "ssh" || strings.Contains(parts[0], "@"):
		return ""
	case hosted: // all after the repository is a folder of it
		rest = strings.Join(parts[:3], "/")
	case !within && !strings.HasSuffix(rest, ".git") && !strings.Contains(query, "ref="):
		return ""
	}
	return repository(scheme + "://" + rest)
}

// repository is a URL without what names the same repository with and without it.
func repository(url string) string { return strings.TrimSuffix(strings.TrimSuffix(url, "/"), ".git") }

// text is a field of an object's spec; "" without.
func text(o gitops.Object, fields ...string) string {
	//nolint:errcheck // Flux refuses another type
	found, _, _ := unstructured.NestedString(o.Object, append([]string{"spec"}, fields...)...)
	return found
}

// isAtHand reports whether the lab serves a URL without --source.
func (s *survey) isAtHand(url string, hosts []string) bool {
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	return url == repository(s.GitURL) || slices.Contains(hosts, host)
}
