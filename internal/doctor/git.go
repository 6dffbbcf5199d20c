package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// repository asks whether the repository that Flux will follow can be read as Flux
// will read it, and has the branch. The token goes into a header.
func (x *examination) repository(heard spoken) []question {
	address := x.text("git_url")
	if address == "" {
		return nil
	}
	return []question{{"git", func(ctx context.Context) []Finding {
		token := x.text("git_token")
		if token == "" && heard.unread != "" {
			return grey("the token for %s is not known: %s", address, heard.unread)
		}
		refs, err := references(ctx, address, x.text("git_username"), token)
		switch {
		case errors.As(err, new(refusal)):
			return red("look at git_url, and whether the token (GITHUB_TOKEN) is still valid and may read this repository", "%s: %v", address, err)
		case err != nil:
			return red("look at git_url and the network", "%s: %v", address, err)
		}
		branch := x.text("git_branch")
		if branch != "" && !strings.Contains(refs, " refs/heads/"+branch+"\n") {
			return red("correct git_branch, or push the branch", "%s can be read and has no branch %s", address, branch)
		}
		return green("%s can be read, and has the branch %s", address, branch)
	}}}
}

// refusal is an answer other than the references.
type refusal string

func (r refusal) Error() string { return string(r) }

// references asks a Git server for its branches, as a client does first:
// https://git-scm.com/docs/http-protocol.
func references(ctx context.Context, address, user, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/info/refs?service=git-upload-pack", nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.SetBasicAuth(user, token)
	}
	request.Header.Set("User-Agent", "git/castle") // some hosts answer to Git alone
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", reason(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		return "", refusal(response.Status)
	}
	if kind := response.Header.Get("Content-Type"); kind != "application/x-git-upload-pack-advertisement" {
		return "", refusal(fmt.Sprintf("that is no Git repository: it answers with %q", kind))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	if err != nil {
		return "", reason(ctx, err)
	}
	// The first reference carries what the server can, behind a zero byte.
	return strings.ReplaceAll(string(body), "\x00", "\n"), nil
}
