package pgo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const (
	stanza           = "db"
	backupAnnotation = group + "/pgbackrest-backup"
	// manualBackup and firstBackup are the values of a Job's label.
	manualBackup = "manual"
	firstBackup  = "replica-create"
	// stanzaRetry is how long PGO waits after a stanza that it could not create.
	stanzaRetry = 10 * time.Second
)

// repositories are those in S3 of a PostgresCluster, or of its data source. The lab's backups to a volume
// are successful without doing anything.
func repositories(repos ...any) []map[string]any {
	var all []map[string]any
	for _, r := range repos {
		if repo, ok := r.(map[string]any); ok && cluster.Nested(repo, "s3") != nil {
			all = append(all, repo)
		}
	}
	return all
}

// backupsOf is the part of a PostgresCluster about its backups.
func backupsOf(c *unstructured.Unstructured) map[string]any {
	return cluster.Nested(c.Object, "spec", "backups", "pgbackrest")
}

func reposOf(c *unstructured.Unstructured) []map[string]any {
	repos, _ := backupsOf(c)["repos"].([]any)
	return repositories(repos...)
}

// repoNumber is that of a repository: pgBackRest's options have it.
func repoNumber(repo map[string]any) string {
	return strings.TrimPrefix(cluster.Text(repo, "name"), "repo")
}

// global are the options of a configuration, as PGO writes them for its repositories: the user's last.
func global(repos []map[string]any, own map[string]any) map[string]string {
	all := map[string]string{}
	for _, repo := range repos {
		name := cluster.Text(repo, "name")
		all[name+"-path"], all[name+"-type"] = "/pgbackrest/"+name, "s3"
		for _, option := range []string{"bucket", "endpoint", "region"} {
			all[name+"-s3-"+option] = cluster.Text(repo, "s3", option)
		}
	}
	for name := range own {
		all[name] = cluster.Text(own, name)
	}
	return all
}

// backups writes the configuration of a database's backups; nil if it has no repository in S3.
func (p *PGO) backups(ctx context.Context, c *unstructured.Unstructured,
	o postgres.Options) (*postgres.Backups, error) {
	spec, repos := backupsOf(c), reposOf(c)
	if len(repos) == 0 {
		return nil, nil
	}
	b := &postgres.Backups{Database: o, Name: "archive", Stanza: stanza}
	files, err := p.projected(ctx, c, spec)
	if err != nil {
		return nil, err
	}
	return b, b.Configure(global(repos, cluster.Nested(spec, "global")), files)
}

// projected are the files that the configuration of backups, or of a data source, brings from Secrets and
// ConfigMaps.
func (p *PGO) projected(ctx context.Context, c *unstructured.Unstructured,
	spec map[string]any) (map[string][]byte, error) {
	sources, _ := spec["configuration"].([]any)
	files := map[string][]byte{}
	for _, s := range sources {
		source, _ := s.(map[string]any)
		kind, field := "Secret", cluster.Nested(source, "secret")
		if field == nil {
			kind, field = "ConfigMap", cluster.Nested(source, "configMap")
		}
		name := cluster.Text(field, "name")
		data, there, err := p.w.Offered(ctx, kind, c.GetNamespace(), name)
		if err != nil {
			return nil, err
		}
		if optional, _ := field["optional"].(bool); !there && !optional {
			return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q: %s %q not found",
				"pgbackrest-config", strings.ToLower(kind), name)
		}
		items, _ := field["items"].([]any)
		for _, i := range items {
			item, _ := i.(map[string]any)
			files[filepath.Base(cluster.Text(item, "path"))] = []byte(data[cluster.Text(item, "key")])
		}
		for key, value := range data {
			if len(items) == 0 {
				files[key] = []byte(value)
			}
		}
	}
	return files, nil
}

// backUp creates the stanza, then has the first backup made, and then those that a user requests.
func (p *PGO) backUp(ctx context.Context, c *unstructured.Unstructured, d *database, changes *changes) error {
	if d.backups == nil {
		return nil
	}
	if _, err := p.backups(ctx, c, d.backups.Database); err != nil {
		return err // the configuration follows its Secrets
	}
	repos := reposOf(c)
	hash := hashOf(repos)
	if !stanzaCreated(c, hash) {
		return p.createStanza(ctx, c, d, hash, changes)
	}
	if cluster.ConditionOf(c.Object, "PGBackRestReplicaCreate") != "True" {
		return p.backUpFirst(ctx, c, d, repos[0], changes)
	}
	p.holdArchive(d)
	return p.backUpManually(ctx, c, d, repos, changes)
}

// hashOf changes with the repositories that need a stanza.
func hashOf(repos []map[string]any) string {
	text, _ := json.Marshal(repos) //nolint:errcheck // it came as JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:10]
}

func stanzaCreated(c *unstructured.Unstructured, hash string) bool {
	repos, _ := cluster.Nested(c.Object, "status", "pgbackrest")["repos"].([]any)
	return len(repos) > 0 && !slices.ContainsFunc(repos, func(r any) bool {
		repo, _ := r.(map[string]any)
		created, _ := repo["stanzaCreated"].(bool)
		return !created || repo["repoOptionsHash"] != hash
	})
}

func (p *PGO) createStanza(ctx context.Context, c *unstructured.Unstructured, d *database, hash string,
	changes *changes) error {
	key := string(c.GetUID()) + " stanza"
	changes.add(func(status map[string]any) {
		setRepos(status, reposOf(c), hash, false, false)
		p.w.SetCondition(status, "PGBackRestReplicaRepoReady", "False", "StanzaNotCreated",
			"pgBackRest replica create repo is not ready for backups", c.GetGeneration())
		p.w.SetCondition(status, "PGBackRestReplicaCreate", "False", "RepoBackupNotComplete",
			"pgBackRest replica creation is not currently possible", c.GetGeneration())
	})
	if p.refused[key] && !p.w.Passed(key, stanzaRetry) {
		return nil
	}
	delete(p.refused, key)
	ended, err := p.run(ctx, key, func(ctx context.Context) error {
		_, err := d.backups.Run(ctx, "stanza-create")
		return err
	})
	if err != nil {
		p.warn(ctx, c, "UnableToCreateStanzas", err.Error())
		p.w.Restart(key)
		p.refused[key] = true
		return err
	}
	if ended {
		changes.add(func(status map[string]any) { setRepos(status, reposOf(c), hash, true, false) })
	}
	return nil
}

// setRepos writes the state of the repositories, of which the first has the first backup.
func setRepos(status map[string]any, repos []map[string]any, hash string, stanza, backup bool) {
	all := []any{}
	for i, repo := range repos {
		all = append(all, map[string]any{"name": cluster.Text(repo, "name"), "repoOptionsHash": hash,
			"stanzaCreated": stanza, "replicaCreateBackupComplete": backup && i == 0})
	}
	backups, _ := status["pgbackrest"].(map[string]any)
	backups = maps.Clone(backups)
	if backups == nil {
		backups = map[string]any{}
	}
	backups["repos"] = all
	status["pgbackrest"] = backups
}

// backUpFirst has the backup made from which replicas are created. If its Job fails, PGO starts another one.
func (p *PGO) backUpFirst(ctx context.Context, c *unstructured.Unstructured, d *database, repo map[string]any,
	changes *changes) error {
	changes.add(func(status map[string]any) {
		p.w.SetCondition(status, "PGBackRestReplicaRepoReady", "True", "StanzaCreated",
			"pgBackRest replica create repo is ready for backups", c.GetGeneration())
	})
	there, err := p.found(ctx, c, backupLabels(c, repo, firstBackup))
	if err != nil {
		return err
	}
	done, err := p.follow(ctx, c, there, p.backupJob(c, d, repo, firstBackup, "", nil))
	switch {
	case err != nil:
		return err
	case failed(done):
		return p.deleteJob(ctx, done)
	case succeeded(done):
		changes.add(func(status map[string]any) {
			setRepos(status, reposOf(c), hashOf(reposOf(c)), true, true)
			p.w.SetCondition(status, "PGBackRestReplicaCreate", "True", "RepoBackupComplete",
				"pgBackRest replica creation is now possible", c.GetGeneration())
		})
	}
	return nil
}

// backUpManually has the backup made that the annotation requests.
func (p *PGO) backUpManually(ctx context.Context, c *unstructured.Unstructured, d *database,
	repos []map[string]any, changes *changes) error {
	manual, id := cluster.Nested(backupsOf(c), "manual"), c.GetAnnotations()[backupAnnotation]
	i := slices.IndexFunc(repos, func(r map[string]any) bool { return r["name"] == manual["repoName"] })
	was := cluster.Nested(c.Object, "status", "pgbackrest", "manualBackup")
	if finished, _ := was["finished"].(bool); manual == nil || id == "" || was["id"] == id && finished {
		return nil
	}
	if i < 0 {
		p.warn(ctx, c, "InvalidBackupRepo", fmt.Sprintf("Unable to find status for %q as configured for a "+
			"manual backup.  Please ensure this repo is defined in the spec.", manual["repoName"]))
		return nil
	}
	options, _, err := unstructured.NestedStringSlice(manual, "options")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(options, func(o string) bool {
		return strings.Contains(o+" ", "--repo ") ||
			strings.Contains(o, "--repo=")
	}) {
		p.warn(ctx, c, "InvalidManualBackup", "Option '--repo' is not allowed: please use the 'repoName' "+
			"field instead.")
		return nil
	}
	there, err := p.found(ctx, c, backupLabels(c, repos[i], manualBackup))
	if err != nil {
		return err
	}
	if there != nil && there.Annotations[backupAnnotation] != id && (succeeded(there) || failed(there)) {
		if err := p.deleteJob(ctx, there); err != nil {
			return err
		}
		there = nil
	}
	done, err := p.follow(ctx, c, there, p.backupJob(c, d, repos[i], manualBackup, id, options))
	if err != nil {
		return err
	}
	changes.add(func(status map[string]any) { p.reportManual(c, status, done) })
	return nil
}

// reportManual writes the state of the backup with the id that its Job has, into the status.
func (p *PGO) reportManual(c *unstructured.Unstructured, status map[string]any, j *batchv1.Job) {
	id := j.Annotations[backupAnnotation]
	backups, _ := status["pgbackrest"].(map[string]any)
	backups = maps.Clone(backups)
	backups["manualBackup"] = jobStatus(id, j)
	status["pgbackrest"] = backups
	const condition = "PGBackRestManualBackupSuccessful"
	switch {
	case succeeded(j):
		p.w.SetCondition(status, condition, "True", "ManualBackupComplete",
			"Manual backup completed successfully", c.GetGeneration())
	case failed(j):
		p.w.SetCondition(status, condition, "False", "ManualBackupFailed",
			"Manual backup did not complete successfully", c.GetGeneration())
	default:
		cluster.DropCondition(status, condition)
	}
}

func backupLabels(c *unstructured.Unstructured, repo map[string]any, kind string) map[string]string {
	return map[string]string{group + "/cluster": c.GetName(), group + "/pgbackrest": "",
		group + "/pgbackrest-repo":   cluster.Text(repo, "name"),
		group + "/pgbackrest-backup": kind}
}

// backupJob is the Job of a backup.
func (p *PGO) backupJob(c *unstructured.Unstructured, d *database, repo map[string]any, kind, id string,
	options []string) job {
	options = append([]string{"--repo=" + repoNumber(repo)}, options...)
	j := job{name: c.GetName() + "-backup-" + strings.ToLower(rand.Text()[:4]),
		labels:  backupLabels(c, repo, kind),
		command: []string{"/opt/crunchy/bin/pgbackrest"},
		do: func(ctx context.Context) error {
			_, err := d.backups.Run(ctx, "backup", options...)
			if err == nil && kind == manualBackup {
				err = p.breakBackup(ctx, d)
			}
			return err
		}}
	if id != "" {
		j.annotations = map[string]string{backupAnnotation: id}
	}
	return j
}

// breakBackup is the fault backup-incomplete: the backup that was just made loses its manifest.
func (p *PGO) breakBackup(ctx context.Context, d *database) error {
	if !p.incomplete.CompareAndSwap(true, false) {
		return nil
	}
	p.w.Tell("backup-incomplete", false)
	out, err := d.backups.Run(ctx, "info", "--output=json")
	if err != nil {
		return err
	}
	var stanzas []struct{ Backup []struct{ Label string } }
	if err := json.Unmarshal([]byte(out), &stanzas); err != nil {
		return err
	}
	made := stanzas[0].Backup[len(stanzas[0].Backup)-1].Label
	for _, suffix := range []string{"", ".copy"} {
		if err := d.backups.Remove(ctx, "backup/"+stanza+"/"+made+"/backup.manifest"+suffix); err != nil {
			return err
		}
	}
	p.w.Tell("backup-incomplete", true)
	return nil
}

// report writes the conditions of backups that are not real, and what all have in common.
func (p *PGO) report(c *unstructured.Unstructured, status map[string]any, due, ready bool) {
	conditions := map[string]string{}
	if due && (ready || len(reposOf(c)) > 0) {
		conditions["PGBackRestRepoHostReady"] = "RepoHostReady"
	}
	if ready && (len(reposOf(c)) == 0 || !exposed(c)) {
		conditions["PGBackRestReplicaRepoReady"] = "StanzaCreated"
		conditions["PGBackRestReplicaCreate"] = "RepoBackupComplete"
	}
	for typ, reason := range conditions {
		p.w.SetCondition(status, typ, "True", reason, "", c.GetGeneration())
	}
}

// archiveCommand is PostgreSQL's. With the fault wal-behind, the command waits as long as a file is there.
func (p *PGO) archiveCommand(b *postgres.Backups) string {
	if !p.w.Asked("wal-behind") {
		return b.ArchiveCommand()
	}
	return fmt.Sprintf("while [ -e ../%s ]; do touch ../%s; sleep 0.1; done; %s", heldName, metName,
		b.ArchiveCommand())
}

// The files of the fault wal-behind, in the folder of a database.
const (
	heldName = "archive-held"
	metName  = "archive-met"
)

// holdArchive is the fault wal-behind: after the first backup, from the next segment of the WAL on, none is
// archived for its time. It counts from that segment: castle looks at the database, and not at the API.
func (p *PGO) holdArchive(d *database) {
	held := filepath.Join(d.backups.Database.Dir, heldName)
	_, err := os.Stat(filepath.Join(d.backups.Database.Dir, metName))
	switch met := err == nil; {
	case p.behind == 0:
		os.Remove(held) //nolint:errcheck // it may be gone
	case !met:
		os.WriteFile(held, nil, 0o600) //nolint:errcheck // the next look writes it
	case p.behindSince.IsZero():
		p.behindSince = p.w.Now()
		p.w.Tell("wal-behind", false)
	case p.w.Now().Sub(p.behindSince) >= p.behind:
		p.behind = 0
		p.w.Tell("wal-behind", true)
		os.Remove(held) //nolint:errcheck // the next look removes it
	}
}
