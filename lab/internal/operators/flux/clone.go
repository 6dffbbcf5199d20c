package flux

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// clone fetches the branch of a repository, with the library that Flux uses. The reasons and texts are those
// of fluxcd/source-controller, gitrepository_controller.go, and fluxcd/pkg, git/gogit.
func clone(ctx context.Context, o *unstructured.Unstructured, secret *corev1.Secret,
	folder string) (string, *obstacle) {
	address, branch := cluster.Text(o.Object, "spec", "url"), branchOf(o)
	failed := func(err error) (string, *obstacle) {
		return "", &obstacle{"GitOperationFailed",
			"failed to checkout and determine revision: " + err.Error()}
	}
	var data map[string][]byte
	if secret != nil {
		data = secret.Data
	}
	ref := plumbing.NewBranchReferenceName(branch)
	options := &git.CloneOptions{URL: address, ReferenceName: ref, SingleBranch: true, Depth: 1,
		Tags: git.NoTags}
	if why := invalidAuth(address, data); why != "" {
		return "", &obstacle{"AuthenticationFailed", "failed to configure authentication options: " + why}
	}
	if strings.HasPrefix(address, "ssh://") {
		auth, err := deployKey(address, data, folder+".hosts")
		if err != nil {
			return failed(fmt.Errorf("unable to construct auth method with options: %w", err))
		}
		options.Auth = auth
	} else if len(data["password"]) > 0 {
		options.Auth = &githttp.BasicAuth{Username: string(data["username"]),
			Password: string(data["password"])}
	}
	options.CABundle = data["ca.crt"]
	if err := emptied(folder); err != nil {
		return failed(err)
	}
	repository, err := git.PlainCloneContext(ctx, folder, false, options)
	switch {
	case errors.Is(err, transport.ErrRepositoryNotFound), errors.As(err, new(git.NoMatchingRefSpecError)):
		return failed(fmt.Errorf("unable to clone: %w: git repository: '%s'", err, address))
	case err != nil:
		return failed(fmt.Errorf("unable to clone '%s': %w", address, err))
	}
	head, err := repository.Head()
	if err != nil {
		return failed(fmt.Errorf("unable to resolve HEAD of branch '%s': %w", branch, err))
	}
	return branch + "@sha1:" + head.Hash().String(), nil
}

// invalidAuth is why credentials cannot be used: fluxcd/pkg/git, AuthOptions.Validate.
func invalidAuth(address string, data map[string][]byte) string {
	scheme, _, _ := strings.Cut(address, "://")
	if scheme != "ssh" {
		if len(data["username"]) == 0 && len(data["password"]) > 0 {
			return "invalid '" + scheme + "' auth option: 'password' requires 'username' to be set"
		}
		return ""
	}
	for _, field := range []string{"identity", "known_hosts"} {
		if len(data[field]) == 0 {
			return "invalid 'ssh' auth option: '" + field + "' is required"
		}
	}
	return ""
}

// deployKey checks the server's key against those in a file that it writes.
func deployKey(address string, data map[string][]byte, hosts string) (*gitssh.PublicKeys, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	auth, err := gitssh.NewPublicKeys(at.User.Username(), data["identity"], string(data["password"]))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(hosts), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(hosts, data["known_hosts"], 0o600); err != nil {
		return nil, err
	}
	auth.HostKeyCallback, err = knownhosts.New(hosts)
	return auth, err
}
