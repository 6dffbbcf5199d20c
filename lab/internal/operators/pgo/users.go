package pgo

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/postgres"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// user is a user in the spec of a PostgresCluster.
type user struct {
	name, options string
	databases     []string
	letters       bool   // its password has no other signs
	verifier      string // what PostgreSQL is told, and not the password
}

const (
	fieldManager = "postgrescluster-controller" // who applies, in a Secret's managedFields
	// signs are the characters of a password, unless it has to consist of letters and digits.
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	signs   = letters + "()*+,-./:;<=>?@[]^_{|}"
)

// users reconciles the Secret of each user. It adopts an existing Secret with the labels and keeps
// its password. It deletes the Secret of a user that the spec no longer lists.
func (p *PGO) users(ctx context.Context, c *unstructured.Unstructured) ([]user, error) {
	all, err := asked(c)
	if err != nil {
		return nil, err
	}
	found, err := p.w.Typed.CoreV1().Secrets(c.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: group + "/cluster=" + c.GetName() + "," + group + "/pguser",
	})
	if err != nil {
		return nil, err
	}
	// Of several with the same labels, that counts which is called as PGO's own, and the oldest of those.
	slices.SortFunc(found.Items, func(a, b corev1.Secret) int {
		own := func(s corev1.Secret) int { return strings.Count(s.Name, "pguser") }
		return cmp.Or(min(own(a), 1)-min(own(b), 1), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
	there := map[string]*corev1.Secret{}
	for _, s := range found.Items {
		name := s.Labels[group+"/pguser"]
		if slices.ContainsFunc(all, func(u user) bool { return u.name == name }) {
			there[name] = &s
		} else if metav1.IsControlledBy(&s, c) {
			if err := p.w.Typed.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name,
				metav1.DeleteOptions{}); err != nil {
				return nil, err
			}
		}
	}
	for i := range all {
		if all[i].verifier, err = p.adopt(ctx, c, all[i], there[all[i].name]); err != nil {
			return nil, fmt.Errorf("user %s: %w", all[i].name, err)
		}
	}
	return all, nil
}

// asked returns the users of a PostgresCluster: if it lists none, one with its own name.
func asked(c *unstructured.Unstructured) ([]user, error) {
	wanted, there, err := unstructured.NestedSlice(c.Object, "spec", "users")
	if err != nil {
		return nil, err
	}
	if !there {
		return []user{{name: c.GetName(), databases: []string{c.GetName()}}}, nil
	}
	var all []user
	for _, w := range wanted {
		one, _ := w.(map[string]any)
		u := user{name: cluster.Text(one, "name"), options: cluster.Text(one, "options"),
			letters: cluster.Text(one, "password", "type") == "AlphaNumeric"}
		if u.databases, _, err = unstructured.NestedStringSlice(one, "databases"); err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

// adopt writes the connection data into the Secret of a user and returns the verifier. It applies
// with force, which keeps the fields of others, such as castle's labels.
func (p *PGO) adopt(ctx context.Context, c *unstructured.Unstructured, u user,
	there *corev1.Secret) (string, error) {
	data, err := u.data(c, there)
	if err != nil {
		return "", err
	}
	name, labels := c.GetName()+"-pguser-"+u.name, map[string]string{
		group + "/cluster": c.GetName(), group + "/pguser": u.name, group + "/role": "pguser",
	}
	if there != nil && there.Name == name && metav1.IsControlledBy(there, c) && holds(there.Labels, labels) &&
		holds(there.Data, data) {
		return string(data["verifier"]), nil
	}
	return string(data["verifier"]), p.applySecret(ctx, c, name, labels, data)
}

// applySecret writes a Secret that belongs to a PostgresCluster.
func (p *PGO) applySecret(ctx context.Context, c *unstructured.Unstructured, name string,
	labels map[string]string, data map[string][]byte) error {
	owner := metav1.NewControllerRef(c, c.GroupVersionKind())
	_, err := p.w.Typed.CoreV1().Secrets(c.GetNamespace()).Apply(ctx,
		applycorev1.Secret(name, c.GetNamespace()).WithLabels(labels).WithData(data).
			WithOwnerReferences(applymetav1.OwnerReference().WithAPIVersion(owner.APIVersion).
				WithKind(owner.Kind).WithName(owner.Name).
				WithUID(owner.UID).WithController(true).WithBlockOwnerDeletion(true)),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// holds reports whether a map contains all entries of another one.
func holds[V any](all, some map[string]V) bool {
	for key, value := range some {
		if is, there := all[key]; !there || !reflect.DeepEqual(is, value) {
			return false
		}
	}
	return true
}

// data returns the data that PGO puts into a user's Secret. It keeps an existing password. It keeps
// an existing verifier, too, without a check against the password: with a verifier of another
// password, no login succeeds.
func (u user) data(c *unstructured.Unstructured, there *corev1.Secret) (map[string][]byte, error) {
	host, port := c.GetName()+"-primary."+c.GetNamespace()+".svc",
		fmt.Sprint(cmp.Or(cluster.Whole(c.Object, "spec", "port"), 5432))
	var password, verifier string
	if there != nil {
		password, verifier = string(there.Data["password"]), string(there.Data["verifier"])
	}
	var err error
	if password == "" {
		verifier = ""
		if password, err = u.newPassword(); err != nil {
			return nil, err
		}
	}
	if verifier == "" {
		if verifier, err = postgres.Verifier(password); err != nil {
			return nil, err
		}
	}
	data := map[string][]byte{
		"host": []byte(host), "port": []byte(port), "user": []byte(u.name), "password": []byte(password),
		"verifier": []byte(verifier),
	}
	if len(u.databases) > 0 {
		name, at := u.databases[0], net.JoinHostPort(host, port)
		uri := url.URL{Scheme: "postgresql", User: url.UserPassword(u.name, password), Host: at, Path: name}
		data["dbname"], data["uri"] = []byte(name), []byte(uri.String())
		data["jdbc-uri"] = []byte("jdbc:postgresql://" + at + "/" + url.PathEscape(name) + "?" +
			url.Values{"user": {u.name}, "password": {password}}.Encode())
	}
	return data, nil
}

// newPassword has PGO's length.
func (u user) newPassword() (string, error) {
	from, made := signs, make([]byte, 24)
	if u.letters {
		from = letters
	}
	for i := range made {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(from))))
		if err != nil {
			return "", err
		}
		made[i] = from[n.Int64()]
	}
	return string(made), nil
}

// write applies the users to the database whenever the spec has changed. With the fault password-diverged,
// a user of a restored database then has another password than its Secret.
func (d *database) write(ctx context.Context, users []user, diverges func() bool) error {
	statements := told(users)
	sum := sha256.Sum256([]byte(statements))
	revision := hex.EncodeToString(sum[:])[:10]
	if revision == d.written {
		return nil
	}
	i := slices.IndexFunc(users, func(u user) bool { return u.name != superuser })
	if i >= 0 && diverges() {
		verifier, err := postgres.Verifier(rand.Text())
		if err != nil {
			return err
		}
		statements += "ALTER ROLE " + postgres.Quoted(users[i].name) + " PASSWORD " +
			postgres.Literal(verifier) + ";\n"
	}
	if _, err := d.ask(ctx, statements); err != nil {
		return err
	}
	d.written = revision
	return nil
}

// told returns the statements that create users and databases. It omits options that PostgreSQL
// does not understand, as PGO does. Of the superuser it changes the password alone.
func told(users []user) string {
	var s strings.Builder
	once := func(what, catalog, column, name string) {
		fmt.Fprintf(&s, "SELECT %s WHERE NOT EXISTS (SELECT FROM %s WHERE %s = %s)\\gexec\n",
			postgres.Literal("CREATE "+what+" "+postgres.Quoted(name)), catalog, column,
			postgres.Literal(name))
	}
	for _, u := range users {
		if u.name == superuser {
			continue
		}
		for _, name := range u.databases {
			once("DATABASE", "pg_database", "datname", name)
		}
	}
	for _, u := range users {
		name := postgres.Quoted(u.name)
		once("USER", "pg_roles", "rolname", u.name)
		fmt.Fprintf(&s, "ALTER ROLE %s PASSWORD %s;\n", name, postgres.Literal(u.verifier))
		if u.name == superuser {
			continue
		}
		if options := strings.Join(strings.Fields(u.options), " "); options != "" &&
			!strings.ContainsAny(options, `\;`) && strings.Count(options, "'")%2 == 0 {
			fmt.Fprintf(&s, "\\set ON_ERROR_STOP off\nALTER ROLE %s WITH %s;\n\\set ON_ERROR_STOP on\n",
				name, options)
		}
		for _, database := range u.databases {
			fmt.Fprintf(&s, "GRANT ALL PRIVILEGES ON DATABASE %s TO %s;\n", postgres.Quoted(database), name)
		}
	}
	return s.String()
}
