package pgo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/front"
	"github.com/ephemeral-castle/castle/lab/internal/objectstore"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
	"github.com/ephemeral-castle/castle/lab/internal/postgres"
)

const (
	accessKey = "LABACCESSKEY"
	secretKey = "lab-secret-key"
)

// backups is a stage with an S3 server that has TLS, and a free address for a database.
type backups struct {
	stage *clustertest.Stage
	pgo   *PGO
	store *objectstore.Server
	at    netip.AddrPort
	port  string // of the S3 server
	log   output

	mu   sync.Mutex
	told []string // of faults
}

// output is what several programs write at the same time.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func newBackups(t *testing.T, faults cluster.Faults) *backups {
	t.Helper()
	program, err := filepath.Abs("../../../../bin/" + objectstore.Program)
	if err != nil {
		t.Fatal(err)
	}
	b := &backups{}
	b.store, err = objectstore.Start(t.Context(), objectstore.Options{Program: program,
		Dir: filepath.Join(t.TempDir(), "s3"), Address: netip.MustParseAddr("127.0.7.8"), Bucket: "tazlab",
		Region: "eu-south-1", AccessKey: accessKey, SecretKey: secretKey, Log: t.Output()})
	if err != nil {
		t.Fatalf("%v (make s3)", err)
	}
	t.Cleanup(func() { b.store.Close() })
	authority, err := front.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(bundle, authority.Bundle(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", bundle)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, b.port, _ = net.SplitHostPort(l.Addr().String())
	server := &http.Server{Handler: b.store.Handler(), TLSConfig: authority.TLS()}
	go server.ServeTLS(l, "", "") //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })

	free, err := net.Listen("tcp", "127.0.7.6:0")
	if err != nil {
		t.Fatal(err)
	}
	b.at = netip.MustParseAddrPort(free.Addr().String())
	free.Close()
	b.stage = newStage(0, clustertest.Deployment("postgres-operator", "pgo"))
	// The time is the real one, with which PostgreSQL's clients compare certificates.
	b.stage.World.Faults, b.stage.Time = faults, time.Now()
	b.stage.World.Turn = func(turn cluster.Turn) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, turn.Fault+map[bool]string{false: " begins", true: " ends"}[turn.Ends])
	}
	b.stage.Add(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "tazlab-s3"},
		Data: map[string][]byte{"s3.conf": []byte("[global]\nrepo1-s3-key=" + accessKey +
			"\nrepo1-s3-key-secret=" + secretKey + "\n")}})
	b.start(t, t.TempDir())
	return b
}

// start starts the operator, whose databases are in a directory.
func (b *backups) start(t *testing.T, dir string) {
	t.Helper()
	b.pgo = New(b.stage.World, dir, func(context.Context, netip.Addr) (bool, error) { return true, nil })
	b.pgo.log = &b.log
	t.Cleanup(b.pgo.Close)
}

// repository is a part of spec.backups or spec.dataSource, as the fleet has it.
func (b *backups) repository(path string) string {
	return `"configuration":[{"secret":{"name":"tazlab-s3"}}],"global":{"repo1-path":"` + path +
		`","repo1-s3-uri-style":"path","repo1-bundle":"y"},`
}

func (b *backups) repo() string {
	return `{"name":"repo1","s3":{"bucket":"tazlab","endpoint":"localhost:` + b.port +
		`","region":"eu-south-1"}}`
}

// birth creates the PostgresCluster that archives below a path, and comes from another one, unless that is
// empty.
func (b *backups) birth(t *testing.T, uid, path, from, configuration string) {
	t.Helper()
	repo := b.repo()
	spec := fmt.Sprintf(`,"port":%d,"service":{"type":"LoadBalancer",
			"metadata":{"annotations":{"metallb.io/loadBalancerIPs":"127.0.7.6"}}},
		"users":[{"name":"postgres"},{"name":"admin","databases":["tazlab"]}],
		"backups":{"pgbackrest":{%s"manual":{"repoName":"repo1","options":["--type=full"]},"repos":[%s]}}`,
		b.at.Port(), b.repository(path), repo)
	if from != "" {
		spec += `,"dataSource":{"pgbackrest":{"stanza":"db",` + strings.ReplaceAll(b.repository(from),
			sameSecret, configuration) +
			`"options":["--type=default"],"repo":` + repo + `}}`
	}
	text := strings.ReplaceAll(strings.ReplaceAll(tazlab, "SPEC", spec), `"uid":"1"`, `"uid":"`+uid+`"`)
	b.stage.Create(t, postgresClusters(), text)
}

const sameSecret = `"configuration":[{"secret":{"name":"tazlab-s3"}}]`

// until looks until the PostgresCluster is as wanted.
func (b *backups) until(t *testing.T, what string, is func(c *unstructured.Unstructured) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := b.pgo.Look(t.Context())
		c := b.stage.Get(t, postgresClusters(), "db", "tazlab")
		if is(c) {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v\n%v\n%s", what, err, c.Object["status"], b.log.String())
		}
	}
}

func (b *backups) untilTrue(t *testing.T, condition string) {
	t.Helper()
	b.until(t, condition, func(c *unstructured.Unstructured) bool {
		return cluster.ConditionOf(c.Object, condition) == "True"
	})
}

// ask runs statements as the superuser with the password in its Secret.
func (b *backups) ask(t *testing.T, statements string) string {
	t.Helper()
	out, err := b.askAs(t, "postgres", "tazlab", statements)
	if err != nil {
		t.Fatalf("%s: %v\n%s", statements, err, b.log.String())
	}
	return out
}

func (b *backups) askAs(t *testing.T, user, database, statements string) (string, error) {
	t.Helper()
	password := b.stage.Secret(t, "db", "tazlab-pguser-"+user).Data["password"]
	return postgres.Query(t.Context(), b.at, database, user, string(password), statements)
}

// backUp requests a backup as castle does, and returns its final state.
func (b *backups) backUp(t *testing.T, id string) map[string]any {
	t.Helper()
	b.change(t, `{"metadata":{"annotations":{"`+backupAnnotation+`":"`+id+`"}}}`)
	var state map[string]any
	b.until(t, "backup "+id, func(c *unstructured.Unstructured) bool {
		state = cluster.Nested(c.Object, "status", "pgbackrest", "manualBackup")
		finished, _ := state["finished"].(bool)
		return state["id"] == id && finished
	})
	return state
}

// remove deletes the PostgresCluster, and returns when its data is gone.
func (b *backups) remove(t *testing.T, uid string) {
	t.Helper()
	if err := b.stage.World.Untyped.Resource(postgresClusters()).Namespace("db").Delete(t.Context(), "tazlab",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The garbage collector would delete what it owns.
	for _, name := range []string{"tazlab-pguser-postgres", "tazlab-pguser-admin", "tazlab-cluster-cert"} {
		if err := b.stage.World.Typed.CoreV1().Secrets("db").Delete(t.Context(), name,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.stage.Look(t, b.pgo)
	<-b.pgo.works[removing+uid].done
	b.stage.Look(t, b.pgo)
	if _, err := os.Stat(b.pgo.folder(types.UID(uid))); !os.IsNotExist(err) {
		t.Errorf("the data of a deleted PostgresCluster is still there: %v", err)
	}
}

// change applies a patch to the PostgresCluster.
func (b *backups) change(t *testing.T, patch string) {
	t.Helper()
	clusters := b.stage.World.Untyped.Resource(postgresClusters()).Namespace("db")
	if _, err := clusters.Patch(t.Context(), "tazlab", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dataSource gives the PostgresCluster another data source.
func (b *backups) dataSource(t *testing.T, patch string) {
	t.Helper()
	b.change(t, `{"spec":{"dataSource":{"pgbackrest":`+patch+`}}}`)
}

// again deletes the Job of a restore that has failed, after which PGO creates it again.
func (b *backups) again(t *testing.T) {
	t.Helper()
	if err := b.stage.World.Typed.BatchV1().Jobs("db").Delete(t.Context(), "tazlab-pgbackrest-restore",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// wantTold checks which faults began and ended.
func (b *backups) wantTold(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.told, want) {
		t.Errorf("faults: %q, want %q", b.told, want)
	}
}

// objects counts the objects of the bucket below a path.
func (b *backups) objects(pattern string) int {
	found, _ := filepath.Glob(filepath.Join(b.store.Folder(), pattern))
	return len(found)
}

func (b *backups) job(t *testing.T, part string) *batchv1.Job {
	t.Helper()
	all, err := b.stage.World.Typed.BatchV1().Jobs("db").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range all.Items {
		if strings.Contains(j.Name, part) {
			return &j
		}
	}
	return nil
}

func (b *backups) warnings(t *testing.T) string {
	t.Helper()
	all, err := b.stage.World.Typed.CoreV1().Events("db").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range all.Items {
		texts = append(texts, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name+" "+e.Reason+": "+e.Message)
	}
	return strings.Join(texts, "\n")
}

func TestADatabaseComesBackFromItsBackup(t *testing.T) {
	b := newBackups(t, cluster.Faults{})
	b.birth(t, "one", "/database/one", "", "")
	b.untilTrue(t, "PGBackRestReplicaCreate")
	b.ask(t, "CREATE TABLE notes (text text); INSERT INTO notes VALUES ('A')")
	if state := b.backUp(t, "castle-1"); cluster.Whole(state, "succeeded") != 1 {
		t.Fatalf("backup: %v\n%s", state, b.warnings(t))
	}
	b.ask(t, "INSERT INTO notes VALUES ('B')")
	segment := b.ask(t, "SELECT pg_walfile_name(pg_switch_wal())")
	b.until(t, "WAL", func(*unstructured.Unstructured) bool {
		return b.objects("database/one/archive/db/15-1/*/"+segment+"-*") == 1
	})
	b.remove(t, "one")

	b.birth(t, "two", "/database/two", "/database/one", sameSecret)
	b.untilTrue(t, "PGBackRestReplicaCreate")
	if got := b.ask(t, "SELECT text FROM notes ORDER BY 1"); got != "A\nB" {
		t.Errorf("rows: %q", got)
	}
	if _, err := b.askAs(t, "admin", "tazlab", "SELECT 1"); err != nil {
		t.Errorf("a user with the password of its new Secret: %v", err)
	}
	c := b.stage.Get(t, postgresClusters(), "db", "tazlab")
	if got := cluster.OfCondition(c.Object, dataInitialized, "reason"); got != "PGBackRestRestoreComplete" {
		t.Errorf("%s: %s", dataInitialized, got)
	}
	if j := b.job(t, "tazlab-pgbackrest-restore"); j == nil || !succeeded(j) {
		t.Errorf("job: %+v", j)
	}
	if b.objects("database/two/backup/db/*F/backup.manifest") != 1 {
		t.Error("the new birth has no backup below its own path")
	}
	if strings.Contains(b.log.String(), secretKey) {
		t.Error("the log holds the key of the S3 server")
	}
}

func TestARestoreThatFailsStaysVisible(t *testing.T) {
	b := newBackups(t, cluster.Faults{BackupIncomplete: true, PasswordDiverged: true,
		Times: map[string]time.Duration{"restore-slow": time.Minute}})
	b.birth(t, "one", "/database/one", "", "")
	b.untilTrue(t, "PGBackRestReplicaCreate")
	first, _ := filepath.Glob(filepath.Join(b.store.Folder(), "database/one/backup/db/*F"))
	if state := b.backUp(t, "castle-1"); cluster.Whole(state, "succeeded") != 1 {
		t.Fatalf("backup: %v", state)
	}
	if sets, whole := b.objects("database/one/backup/db/*F"),
		b.objects("database/one/backup/db/*F/backup.manifest"); sets != 2 || whole != 1 {
		t.Errorf("%d backups, and %d with a manifest", sets, whole)
	}
	b.remove(t, "one")

	b.birth(t, "two", "/database/two", "/database/one", `"configuration":[]`)
	b.until(t, "Job", func(*unstructured.Unstructured) bool { return b.job(t, "restore") != nil })
	for range 5 {
		b.stage.Look(t, b.pgo)
	}
	if j := b.job(t, "restore"); j.Status.Active != 1 || j.Status.Failed != 0 {
		t.Errorf("a slow restore: %+v", j.Status)
	}
	b.stage.Time = b.stage.Time.Add(time.Minute)
	fails := func(want string) {
		t.Helper()
		b.until(t, want, func(c *unstructured.Unstructured) bool {
			j := b.job(t, "restore")
			return j != nil && failed(j) &&
				cluster.OfCondition(c.Object, dataInitialized, "reason") == "PGBackRestRestoreFailed"
		})
		if j := b.job(t, "restore"); j.Status.Failed != mostRetries+1 {
			t.Errorf("job: %+v", j.Status)
		}
		if got := b.warnings(t); !strings.Contains(got, "PostgresCluster/tazlab JobPodFailed") ||
			!strings.Contains(got, want) {
			t.Errorf("want %s:\n%s", want, got)
		}
	}
	fails("[037]: restore command requires option: repo1-s3-key")
	b.dataSource(t, "{"+sameSecret+"}")
	b.again(t)
	fails("backup.manifest' for read")
	b.dataSource(t, `{"options":["--type=default","--set=`+filepath.Base(first[0])+`"]}`)
	b.again(t)
	b.untilTrue(t, "PGBackRestReplicaCreate")
	b.ask(t, "SELECT 1")
	if out, err := b.askAs(t, "admin", "tazlab", "SELECT 1"); err == nil {
		t.Errorf("the password of the Secret logs in: %s", out)
	}
	b.wantTold(t, "backup-incomplete begins", "backup-incomplete ends", "restore-slow begins",
		"restore-slow ends", "password-diverged begins", "password-diverged ends")
}

func TestADataSourceReplacesADatabaseThatRuns(t *testing.T) {
	b := newBackups(t, cluster.Faults{Times: map[string]time.Duration{"wal-behind": time.Minute}})
	b.birth(t, "one", "/database/one", "", "")
	b.untilTrue(t, "PGBackRestReplicaCreate")
	b.stage.Look(t, b.pgo) // the fault begins
	b.ask(t, "CREATE TABLE notes (text text); INSERT INTO notes VALUES ('archived')")
	segment := b.ask(t, "SELECT pg_walfile_name(pg_switch_wal())")
	archived := func() bool { return b.objects("database/one/archive/db/15-1/*/"+segment+"-*") == 1 }
	b.until(t, "fault", func(*unstructured.Unstructured) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.told) == 1
	})
	if archived() {
		t.Error("the WAL is archived while it is behind")
	}
	b.stage.Time = b.stage.Time.Add(time.Minute)
	b.until(t, "WAL", func(*unstructured.Unstructured) bool { return archived() })
	b.wantTold(t, "wal-behind begins", "wal-behind ends")

	// The data outlasts the operator and its database.
	b.pgo.Close()
	b.start(t, b.pgo.dir)
	b.until(t, "database", func(*unstructured.Unstructured) bool { return len(b.pgo.running) == 1 })

	b.ask(t, "INSERT INTO notes VALUES ('lost'); ALTER ROLE admin PASSWORD 'changed'")
	b.dataSource(t, `{"stanza":"db",`+b.repository("/database/one")+`"repo":`+b.repo()+`}`)
	b.untilTrue(t, dataInitialized)
	b.until(t, "database", func(*unstructured.Unstructured) bool { return len(b.pgo.running) == 1 })
	if got := b.ask(t, "SELECT text FROM notes"); got != "archived" {
		t.Errorf("rows: %q", got)
	}
}

func TestAServerWithoutItsRepositoryIsReported(t *testing.T) {
	b := newBackups(t, cluster.Faults{})
	b.stage.Add(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "wrong"},
		Data: map[string][]byte{"s3.conf": []byte("[global]\nrepo1-s3-key=" + accessKey +
			"\nrepo1-s3-key-secret=wrong\n")}})
	b.birth(t, "one", "/database/one", "", "")
	patch := `{"spec":{"backups":{"pgbackrest":{"configuration":[{"secret":{"name":"absent"}}]}}}}`
	wants := func(want string) {
		t.Helper()
		b.until(t, want, func(*unstructured.Unstructured) bool {
			return strings.Contains(b.warnings(t), want)
		})
	}
	b.change(t, patch)
	wants(`DatabaseNotStarted: MountVolume.SetUp failed for volume "pgbackrest-config": secret "absent" ` +
		`not found`)
	b.change(t, strings.Replace(patch, "absent", "wrong", 1))
	wants("UnableToCreateStanzas: ")
	if got := b.warnings(t); !strings.Contains(got, "403 (Forbidden)") || strings.Contains(got, accessKey) {
		t.Error(got)
	}
	c := b.stage.Get(t, postgresClusters(), "db", "tazlab")
	if got := cluster.ConditionOf(c.Object, "PGBackRestReplicaRepoReady"); got != "False" {
		t.Errorf("PGBackRestReplicaRepoReady: %q", got)
	}
	b.change(t, strings.Replace(patch, "absent", "tazlab-s3", 1))
	b.untilTrue(t, "PGBackRestReplicaRepoReady")
	if pem := b.stage.Secret(t, "db", "tazlab-cluster-cert").Data["ca.crt"]; !verifies(t, b.at, pem) {
		t.Error("the authority in the Secret does not verify the server's certificate")
	}
}

// verifies reports whether a client that trusts an authority and expects the name of the Service connects.
func verifies(t *testing.T, at netip.AddrPort, authority []byte) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	// Without a password, the server refuses the login, and not the client its certificate.
	_, err := postgres.Query(t.Context(), at, "host=tazlab-primary.db.svc hostaddr="+at.Addr().String()+
		" sslmode=verify-full sslrootcert="+file, "postgres", "wrong", "SELECT 1")
	return err != nil && strings.Contains(err.Error(), "password authentication failed")
}
