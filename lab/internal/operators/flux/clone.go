package flux

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// clone fetches the branch of a repository over SSH, with the library that Flux uses. The reasons and texts
// are those of fluxcd/source-controller, gitrepository_controller.go, and fluxcd/pkg, git/gogit.
func clone(ctx context.Context, o *unstructured.Unstructured, secret *corev1.Secret,
	folder string) (string, *obstacle) {
	address, branch := cluster.Text(o.Object, "spec", "url"), branchOf(o)
	var data map[string][]byte
	if secret != nil {
		data = secret.Data
	}
	for _, field := range []string{"identity", "known_hosts"} { // fluxcd/pkg/git, AuthOptions.Validate
		if len(data[field]) == 0 {
			return "", &obstacle{"AuthenticationFailed", fmt.Sprintf("failed to configure authentication "+
				"options: invalid 'ssh' auth option: '%s' is required", field)}
		}
	}
	failed := func(err error) (string, *obstacle) {
		return "", &obstacle{"GitOperationFailed",
			"failed to checkout and determine revision: " + err.Error()}
	}
	auth, err := deployKey(address, data, folder+".hosts")
	if err != nil {
		return failed(fmt.Errorf("unable to construct auth method with options: %w", err))
	}
	if err := emptied(folder); err != nil {
		return failed(err)
	}
	ref := plumbing.NewBranchReferenceName(branch)
	repository, err := git.PlainCloneContext(ctx, folder, false, &git.CloneOptions{URL: address, Auth: auth,
		ReferenceName: ref, SingleBranch: true, Depth: 1, Tags: git.NoTags})
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
