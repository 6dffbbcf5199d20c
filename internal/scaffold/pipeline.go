package scaffold

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/process"
)

// The files begin with the command that wrote them and a checksum of the rest, so that castle replaces its
// own files and none that somebody else has written or changed.
//
//go:embed github*.yml gitlab*.yml fleet-*.yml
var pipelineFiles embed.FS

// PipelineSystem is where a pipeline runs.
type PipelineSystem struct {
	Name  string // github
	Title string
	Path  string // of the file, in the Git repository
	// FleetPath is that of the file for many clusters.
	FleetPath string
	Runner    string // a label or tag that the runners have; empty: any that is self-hosted
}

// PipelineSystems returns every system that castle writes a pipeline for.
func PipelineSystems() []PipelineSystem {
	return []PipelineSystem{
		{"github", "GitHub Actions", ".github/workflows/castle.yml", ".github/workflows/castle-fleet.yml",
			""},
		{"gitlab", "GitLab CI/CD", ".gitlab-ci.yml", ".gitlab-ci.yml", "castle"},
	}
}

// Pipeline describes what runs for the clusters of a repository.
type Pipeline struct {
	Repository string // of castle, absolute
	Version    string // castle's own
	Command    string // that writes the file, for its first line
	Path       string // of the file in the Git repository; empty: the system's own
	Clusters   []PipelineCluster
	Branch     string // whose configuration the clusters have
	Runner     string // the label or tag of the runners
	Store      string // the URL of the store
	// StoreVariable reports that CASTLE_STATE_STORE names the store, and not castle.hcl.
	StoreVariable bool
	Memory        bool     // castle.hcl keeps the working copies in memory
	Secrets       []string // further variables that hold secrets
	Force         bool     // replace a file of castle that somebody has changed
	Fleet         *Fleet   // the waves of many clusters; nil: jobs for each cluster
}

// PipelineCluster is one cluster of the repository.
type PipelineCluster struct {
	Name      string   // blue/proxmox
	Reference string   // blue, if that is enough
	Providers []string // that its stages use: infisical
	// SecretsFile reports that it has a secrets.tfvars, which is not in Git.
	SecretsFile bool
	Secrets     []string // variables that hold secrets; Write sets them
}

// ID is the name as a part of names that may not contain a slash.
func (c PipelineCluster) ID() string { return strings.ReplaceAll(c.Name, "/", "-") }

// Prefix begins the names of secrets that this cluster alone has.
func (c PipelineCluster) Prefix() string {
	return strings.ToUpper(strings.NewReplacer("/", "_", "-", "_").Replace(c.Reference)) + "_"
}

// storeSecrets are the credentials of each kind of store.
var storeSecrets = map[string][]string{
	"s3":       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
	"postgres": {"PGUSER", "PGPASSWORD"},
}

// providerSecrets are the credentials that a user holds for a provider. The platforms' tokens come from the
// cluster's secrets; the variables are for a destroy after those were rotated.
var providerSecrets = map[string][]string{
	"infisical": {"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID", "INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"},
	"vault":     {"VAULT_TOKEN"},
	"hcloud":    {"HCLOUD_TOKEN"},
	"proxmox":   {"PROXMOX_VE_API_TOKEN"},
}

// OwnerError reports that a file is not castle's, or not as castle wrote it.
type OwnerError struct {
	Path    string
	Changed bool // castle wrote it
}

func (e *OwnerError) Error() string {
	if e.Changed {
		return fmt.Sprintf("%s was changed since castle wrote it; nothing was written\n  --force replaces "+
			"it (commit it first, to keep the changes)", e.Path)
	}
	return fmt.Sprintf("%s exists, and castle did not write it; nothing was written\n  move it away, or "+
		"write to another file with --file", e.Path)
}

// PipelineFile is what WritePipeline has written.
type PipelineFile struct {
	Path      string   `json:"file"`               // absolute
	Unchanged bool     `json:"unchanged"`          // it was up to date
	Installs  string   `json:"installs,omitempty"` // the version of castle; empty if none has this one
	Secrets   []string `json:"secrets"`            // that the jobs get
	Prefixes  []string `json:"prefixes"`           // of secrets for one cluster alone
}

// WritePipeline writes or updates the file of a system.
func WritePipeline(s PipelineSystem, p Pipeline) (*PipelineFile, error) {
	root, err := gitRoot(p.Repository)
	if err != nil {
		return nil, err
	}
	if p.Path == "" && p.Fleet != nil {
		p.Path = s.FleetPath
	}
	p.Path = cmp.Or(p.Path, s.Path)
	if !filepath.IsLocal(p.Path) {
		return nil, fmt.Errorf("--file %s: name a file in %s, relative to it", p.Path, root)
	}
	data, err := newPipelineValues(p, root)
	if err != nil {
		return nil, err
	}
	text, err := renderPipeline(s, data)
	if err != nil {
		return nil, err
	}
	f := &PipelineFile{Path: filepath.Join(root, p.Path), Installs: data.Install, Secrets: data.AllSecrets,
		Prefixes: []string{}}
	for _, c := range data.Clusters {
		if s.Name == "github" && (data.Several() || p.Fleet != nil) {
			f.Prefixes = append(f.Prefixes, c.Prefix())
		}
	}
	old, err := os.ReadFile(f.Path)
	switch own, intact := inspectPipeline(old); {
	case errors.Is(err, fs.ErrNotExist):
		return f, writeFile(f.Path, text, 0o644)
	case err != nil:
		return nil, err
	case bytes.Equal(old, text):
		f.Unchanged = true
		return f, nil
	case !own || !intact && !p.Force:
		return nil, &OwnerError{Path: f.Path, Changed: own}
	}
	temporary := f.Path + ".new"
	if err := writeFile(temporary, text, 0o644); err != nil {
		return nil, err
	}
	return f, os.Rename(temporary, f.Path)
}

// gitRoot returns the folder of the Git repository that a castle repository is in, or the latter.
func gitRoot(repository string) (string, error) {
	for dir := repository; ; dir = filepath.Dir(dir) {
		_, err := os.Lstat(filepath.Join(dir, ".git"))
		switch {
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		case dir == filepath.Dir(dir):
			return repository, nil
		}
	}
}

const (
	pipelineFirst = "# Written by castle "
	pipelineHint  = "# Run this command again after an upgrade of castle, or for other clusters. castle " +
		"replaces this\n# file only if nobody has changed it.\n"
)

// pipelineSum matches the second line of a file.
var pipelineSum = regexp.MustCompile(`^# sha256 of the rest: ([0-9a-f]{64})\n`)

// renderPipeline renders github.yml, with the parts of a cluster's jobs that are in github-*.yml.
func renderPipeline(s PipelineSystem, v *pipelineValues) ([]byte, error) {
	jobs, err := renderJobs(s, v)
	if err != nil {
		return nil, err
	}
	body := append([]byte(pipelineHint), jobs...)
	head := fmt.Sprintf("%s%s: %s\n# sha256 of the rest: %x\n", pipelineFirst, v.Pipeline.Version,
		v.Pipeline.Command, sha256.Sum256(body))
	return append([]byte(head), body...), nil
}

func renderJobs(s PipelineSystem, v *pipelineValues) ([]byte, error) {
	if v.Pipeline.Fleet != nil {
		return renderFleet(s, v)
	}
	parts, err := fs.Glob(pipelineFiles, s.Name+"-*.yml")
	if err != nil {
		return nil, err
	}
	clusters := v.clusters()
	for _, c := range clusters {
		for _, file := range parts {
			text, err := fillPipeline(file, v.data("cluster", c))
			if err != nil {
				return nil, err
			}
			name := strings.TrimPrefix(strings.TrimSuffix(file, ".yml"), s.Name+"-")
			c[name] = string(text)
		}
	}
	return fillPipeline(s.Name+".yml", v.data("clusters", clusters))
}

func fillPipeline(file string, data map[string]any) ([]byte, error) {
	src, err := pipelineFiles.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text, err := parseTemplate(src, file)
	if err != nil {
		return nil, err
	}
	values, err := valuesOf(data)
	if err != nil {
		return nil, err
	}
	return fill(text, values)
}

// inspectPipeline reports whether castle wrote a file, and whether nobody has changed it since.
func inspectPipeline(text []byte) (own, intact bool) {
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	sum := pipelineSum.FindSubmatch(rest)
	if !bytes.HasPrefix(first, []byte(pipelineFirst)) || sum == nil {
		return false, false
	}
	return true, fmt.Sprintf("%x", sha256.Sum256(rest[len(sum[0]):])) == string(sum[1])
}

// word is a text as one word of a shell line.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return process.Quote(text)
}

var plainWord = regexp.MustCompile(`^[\w./-]+$`)

// yamlList returns names as a list of YAML.
func yamlList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// pipelineValues are what the files depend on.
type pipelineValues struct {
	Pipeline   Pipeline
	Clusters   []PipelineCluster
	Folder     string   // of the castle repository in the Git repository; empty if they are the same
	Install    string   // see PipelineFile
	Pattern    string   // of the shell: how the output of castle version begins
	AllSecrets []string // of all clusters
}

func newPipelineValues(p Pipeline, root string) (*pipelineValues, error) {
	v := &pipelineValues{Pipeline: p}
	var err error
	if v.Folder, err = filepath.Rel(root, p.Repository); err != nil {
		return nil, err
	}
	if v.Folder == "." {
		v.Folder = ""
	}
	v.Install, v.Pattern = installable(p.Version)
	scheme, _, _ := strings.Cut(p.Store, ":")
	for _, c := range p.Clusters {
		c.Secrets = append([]string{"CASTLE_AGE_IDENTITY"}, storeSecrets[scheme]...)
		for _, provider := range c.Providers {
			c.Secrets = append(c.Secrets, providerSecrets[provider]...)
		}
		if c.SecretsFile {
			c.Secrets = append(c.Secrets, "SECRETS_TFVARS")
		}
		c.Secrets = append(c.Secrets, p.Secrets...)
		slices.Sort(c.Secrets)
		c.Secrets = slices.Compact(c.Secrets)
		v.Clusters = append(v.Clusters, c)
		v.AllSecrets = append(v.AllSecrets, c.Secrets...)
	}
	slices.Sort(v.AllSecrets)
	v.AllSecrets = slices.Compact(v.AllSecrets)
	return v, nil
}

// Several reports whether secrets may have a cluster's prefix.
func (v *pipelineValues) Several() bool { return len(v.Clusters) > 1 }

// data returns what the files read, and a value more.
func (v *pipelineValues) data(name string, value any) map[string]any {
	p := v.Pipeline
	place := p.Store
	if p.StoreVariable {
		place = "the store that CASTLE_STATE_STORE names"
	}
	castle := "castle " + v.Install + ", or Go 1.26 or later: then a job builds it"
	if v.Install == "" {
		castle = "this castle (" + p.Version + "): a development build, which no job can install"
	}
	references := xslices.Map(v.Clusters, func(c PipelineCluster) string { return c.Reference })
	labels := "self-hosted" // of a runner of GitHub
	if p.Runner != "" {
		labels = yamlList([]string{"self-hosted", p.Runner})
	}
	return map[string]any{
		"memory": p.Memory,
		"branch": p.Branch, "runner": p.Runner, "folder": v.Folder, "install": v.Install,
		"pattern": v.Pattern, "place": place, "references": yamlList(references), "labels": labels,
		"programs":       []string{castle, "Git", "Terraform 1.9 or later; without it castle downloads one"},
		"secrets":        v.AllSecrets,
		"several":        v.Several(),
		"store_variable": p.StoreVariable,
		"quoted": map[string]string{"branch": strconv.Quote(p.Branch), "runner": strconv.Quote(p.Runner),
			"folder": strconv.Quote(v.Folder), "enter": strconv.Quote("cd " + word(v.Folder))},
		name: value,
	}
}

// clusters returns what the files read of each cluster.
func (v *pipelineValues) clusters() (all []map[string]any) {
	for _, c := range v.Clusters {
		secrets := path.Join("clusters", c.Name, "secrets.tfvars")
		all = append(all, map[string]any{"name": c.Name, "id": c.ID(), "reference": c.Reference,
			"word": word(c.Reference), "secrets_path": word(secrets),
			"remove": strconv.Quote(`rm -f "$CI_PROJECT_DIR"/` + word(path.Join(v.Folder, secrets))),
			"prefix": c.Prefix(), "secrets_file": c.SecretsFile, "secrets": c.Secrets, "history": false})
	}
	return all
}

var (
	releaseVersion = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)[.\d]*)?)$`)
	commitVersion  = regexp.MustCompile(`^(?:v?\d+\.\d+\.\d+.*-g)?([0-9a-f]{7,40})$`)
)

// installable returns the version by which `go install` finds this castle, and a pattern of the shell for
// what castle version prints then; nothing for a development build.
func installable(version string) (install, pattern string) {
	if m := releaseVersion.FindStringSubmatch(version); m != nil {
		return "v" + m[1], fmt.Sprintf(`"castle v%s "*|"castle %[1]s "*`, m[1])
	}
	if m := commitVersion.FindStringSubmatch(version); m != nil { // by the linker or by go install
		return m[1], fmt.Sprintf(`"castle "*%s*`, m[1][:7])
	}
	return "", ""
}
