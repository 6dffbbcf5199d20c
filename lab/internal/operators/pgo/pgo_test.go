package pgo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

const tazlab = `{"apiVersion":"postgres-operator.crunchydata.com/v1beta1","kind":"PostgresCluster",
	"metadata":{"namespace":"db","name":"tazlab","uid":"1","generation":3},
	"spec":{"postgresVersion":17,"instances":[{"name":"one"},{"replicas":2}]SPEC}}`

func pguser(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "tazlab-pguser-" + name,
		Labels: map[string]string{
			"app.kubernetes.io/managed-by": "castle", group + "/cluster": "tazlab",
			group + "/pguser": name,
		}}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func update(t *testing.T, s *clustertest.Stage, secret *corev1.Secret) {
	t.Helper()
	if _, err := s.World.Typed.CoreV1().Secrets(secret.Namespace).Update(t.Context(), secret,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// deploy returns the operator of a PostgresCluster that has this spec, too. MetalLB has no addresses.
func deploy(t *testing.T, s *clustertest.Stage, spec string) *PGO {
	t.Helper()
	return deployIn(t, s, spec, new(netip.Prefix))
}

// deployIn is deploy with a pool of addresses.
func deployIn(t *testing.T, s *clustertest.Stage, spec string, pool *netip.Prefix) *PGO {
	t.Helper()
	s.Create(t, postgresClusters(), strings.ReplaceAll(tazlab, "SPEC", spec))
	p := New(s.World, t.TempDir(), func(_ context.Context, at netip.Addr) (bool, error) {
		return pool.Contains(at), nil
	})
	t.Cleanup(p.Close)
	return p
}

func TestPGOAdoptsASecretWithItsPassword(t *testing.T) {
	mine := pguser("admin", map[string]string{"password": "p@ss/word"})
	s := newStage(1, clustertest.Deployment("postgres-operator", "pgo"), mine)
	s.Look(t, deploy(t, s, `,"users":[{"name":"admin","databases":["one","two"]}],"port":5433`))

	got := s.Secret(t, "db", mine.Name)
	for key, want := range map[string]string{
		"password": "p@ss/word", "host": "tazlab-primary.db.svc", "port": "5433", "user": "admin",
		"dbname":   "one",
		"uri":      "postgresql://admin:p%40ss%2Fword@tazlab-primary.db.svc:5433/one",
		"jdbc-uri": "jdbc:postgresql://tazlab-primary.db.svc:5433/one?password=p%40ss%2Fword&user=admin",
	} {
		if string(got.Data[key]) != want {
			t.Errorf("%s: %q, want %q", key, got.Data[key], want)
		}
	}
	if !strings.HasPrefix(string(got.Data["verifier"]), "SCRAM-SHA-256$4096:") || len(got.Data) != 8 {
		t.Errorf("data: %q", got.Data)
	}
	if got.Labels[group+"/role"] != "pguser" || got.Labels["app.kubernetes.io/managed-by"] != "castle" {
		t.Errorf("labels: %v", got.Labels)
	}
	if owner := metav1.GetControllerOf(got); owner == nil || owner.Kind != "PostgresCluster" ||
		owner.UID != "1" || !*owner.BlockOwnerDeletion {
		t.Errorf("owner: %+v", owner)
	}
	// Flux's health check is content with a generation that was seen, whether PostgreSQL runs or not.
	is := s.Get(t, postgresClusters(), "db", "tazlab")
	if cluster.Whole(is.Object, "status", "observedGeneration") != 3 ||
		cluster.ConditionOf(is.Object, "Ready") != "" {
		t.Errorf("status: %v", is.Object["status"])
	}
	if status := fmt.Sprint(is.Object["status"]); strings.Contains(status, "word") ||
		!strings.Contains(status, "name:one replicas:1") || !strings.Contains(status, "name:01 replicas:2") {
		t.Errorf("status: %v", status)
	}
}

func TestPGOKeepsAVerifierAndMakesAPasswordThatIsMissing(t *testing.T) {
	s := newStage(1, clustertest.Deployment("postgres-operator", "pgo"),
		pguser("kept", map[string]string{"password": "one", "verifier": "SCRAM-SHA-256$of another"}),
		pguser("empty", map[string]string{"password": "", "verifier": "SCRAM-SHA-256$of nobody"}))
	p := deploy(t, s, `,"users":[{"name":"kept"},{"name":"empty"},{"name":"new",`+
		`"password":{"type":"AlphaNumeric"}}]`)
	s.Look(t, p)
	if got := s.Secret(t, "db",
		"tazlab-pguser-kept"); string(got.Data["verifier"]) != "SCRAM-SHA-256$of another" ||
		got.Data["uri"] != nil || got.Data["dbname"] != nil {
		t.Errorf("kept: %q", got.Data)
	}
	made := map[string]string{}
	for _, name := range []string{"empty", "new"} {
		got := s.Secret(t, "db", "tazlab-pguser-"+name)
		made[name] = string(got.Data["password"])
		if len(made[name]) != 24 || strings.Contains(string(got.Data["verifier"]), "nobody") {
			t.Errorf("%s: %q", name, got.Data)
		}
	}
	if made["empty"] == made["new"] || strings.Trim(made["new"], letters) != "" {
		t.Errorf("%q", made)
	}
	s.Look(t, p)
	if again := string(s.Secret(t, "db", "tazlab-pguser-new").Data["password"]); again != made["new"] {
		t.Error("a password is made with each look")
	}
}

func TestPGOKnowsASecretByItsLabels(t *testing.T) {
	other, gone, foreign := pguser("admin", map[string]string{"password": "one"}), pguser("gone", nil),
		pguser("foreign", nil)
	other.Name = "somebody-elses-name"
	gone.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: group + "/v1beta1", Kind: "PostgresCluster", Name: "tazlab", UID: "1",
			Controller: new(true)},
	}
	s := newStage(1, clustertest.Deployment("postgres-operator", "pgo"), other, gone, foreign)
	s.Look(t, deploy(t, s, `,"users":[{"name":"admin"}]`))
	if got := s.Secret(t, "db", "tazlab-pguser-admin"); string(got.Data["password"]) != "one" {
		t.Errorf("its own: %q", got.Data)
	}
	if got := s.Secret(t, "db", other.Name); len(got.Data) != 1 || len(got.OwnerReferences) != 0 {
		t.Errorf("the other: %q", got.Data)
	}
	if _, err := s.World.Typed.CoreV1().Secrets("db").Get(t.Context(), gone.Name,
		metav1.GetOptions{}); err == nil {
		t.Error("the Secret of a user who is not asked for is still there")
	}
	s.Secret(t, "db", foreign.Name)
}

func TestAClusterWithoutUsersHasOneOfItsName(t *testing.T) {
	s := newStage(1, clustertest.Deployment("postgres-operator", "pgo"))
	s.Look(t, deploy(t, s, ""))
	if got := s.Secret(t, "db", "tazlab-pguser-tazlab"); string(got.Data["dbname"]) != "tazlab" {
		t.Errorf("%q", got.Data)
	}
}

func TestPGOsDatabaseTakesWhatTheSecretsSay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.7.6:0")
	if err != nil {
		t.Fatal(err)
	}
	place := netip.MustParseAddrPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	const password = `it's "p@ss\word"`
	s := newStage(0, clustertest.Deployment("postgres-operator", "pgo"),
		pguser("admin", map[string]string{"password": password}))
	s.Add(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "init"},
		Data: map[string]string{"sql": "nonsense;\nGRANT pg_read_all_data TO admin WITH ADMIN OPTION;\n"}})
	var pool netip.Prefix
	p := deployIn(t, s, fmt.Sprintf(`,"port":%d,"databaseInitSQL":{"name":"init","key":"sql"},
		"service":{"type":"LoadBalancer",
			"metadata":{"annotations":{"metallb.io/loadBalancerIPs":"127.0.7.6"}}},
		"users":[{"name":"admin","databases":["one","two"],"options":"CREATEROLE"},
			{"name":"typo","options":"CREATEROL"}]`, place.Port()), &pool)
	var log bytes.Buffer
	p.log = &log

	if err := p.Look(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "127.0.7.6 is in no IPAddressPool") {
		t.Fatalf("without a pool: %v", err)
	}
	pool = netip.MustParsePrefix("127.0.7.4/30")
	if err := p.Look(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	ask := func(database, user, password, statement string) string {
		out, err := postgres.Query(t.Context(), place, database, user, password, statement)
		if err != nil {
			return err.Error()
		}
		return out
	}
	roles := "SELECT rolcreaterole, pg_has_role('pg_read_all_data', 'MEMBER WITH ADMIN OPTION'), " +
		"has_database_privilege('one', 'CREATE') FROM pg_roles WHERE rolname = current_user"
	if got := ask("two", "admin", password, roles); got != "t|t|t" {
		t.Errorf("admin: %s", got)
	}
	if got := ask("postgres", "typo", string(s.Secret(t, "db", "tazlab-pguser-typo").Data["password"]),
		"SELECT rolcreaterole FROM pg_roles WHERE rolname = current_user"); got != "f" {
		t.Errorf("typo: %s", got)
	}
	if got := ask("dbname=one sslmode=disable", "admin", password,
		"SELECT 1"); !strings.Contains(got, "no pg_hba.conf entry") {
		t.Errorf("without TLS: %s", got)
	}
	if got := s.Get(t, postgresClusters(), "db",
		"tazlab"); cluster.Text(got.Object, "status", "databaseInitSQL") != "init" ||
		cluster.ConditionOf(got.Object, "PGBackRestRepoHostReady") != "True" {
		t.Errorf("status: %v", got.Object["status"])
	}

	// PGO passes the verifier to PostgreSQL, so a verifier of another password takes effect.
	mine := s.Secret(t, "db", "tazlab-pguser-admin")
	verifier, err := postgres.Verifier("another")
	if err != nil {
		t.Fatal(err)
	}
	mine.Data["verifier"] = []byte(verifier)
	update(t, s, mine)
	s.Look(t, p)
	if got := ask("one", "admin", password,
		"SELECT 1"); !strings.Contains(got, "password authentication failed") {
		t.Errorf("with another's verifier: %s", got)
	}
	// To exchange a password is to write the new one, and no verifier.
	mine.Data["password"], mine.Data["verifier"] = []byte("exchanged"), nil
	update(t, s, mine)
	s.Look(t, p)
	if got := ask("one", "admin", "exchanged", "SELECT 1"); got != "1" {
		t.Errorf("exchanged: %s", got)
	}
	for _, secret := range []string{password, "exchanged", verifier} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log says %q", secret)
		}
	}
}

func newStage(speed float64, objects ...runtime.Object) *clustertest.Stage {
	kinds := map[schema.GroupVersionResource]string{postgresClusters(): "PostgresClusterList"}
	return clustertest.New(kinds, speed, objects...)
}
