package sources

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Git is a repository with one commit: what a folder holds.
type Git struct {
	program, dir, folder, git string // git is the folder of Git's own files
	branches                  []string
	public                    bool // everybody may read it
	clone                     bool // somebody's, which stays as it is

	mu sync.Mutex // one commit at a time
}

// NewGit makes the repository in dir, unless the folder is a clone, as Checkout makes it: that one keeps its
// commit, and gets further ones. Without a folder the commit is empty.
func NewGit(ctx context.Context, dir, folder string, branches []string) (*Git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, errors.New("the program git, which serves Flux's repository, is not on PATH")
	}
	g := &Git{program: program, dir: dir, folder: folder, git: filepath.Join(dir, ".git"), branches: branches}
	if folder == "" {
		g.folder = filepath.Join(dir, "empty")
	}
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o700); err != nil {
		return nil, err
	}
	if own := filepath.Join(g.folder, ".git"); isFolder(own) {
		g.git = own
	} else if err := g.run(ctx, "init", "--quiet"); err != nil {
		return nil, err
	}
	return g, g.commit(ctx)
}

// openClone serves a clone or a bare repository as it is; nil if the folder is neither.
func openClone(dir, folder string) (*Git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, errors.New("the program git, which serves Flux's sources, is not on PATH")
	}
	for _, own := range []string{filepath.Join(folder, ".git"), folder} {
		if isFolder(filepath.Join(own, "objects")) && isFolder(filepath.Join(own, "refs")) {
			return &Git{program: program, dir: dir, folder: folder, git: own, clone: true}, nil
		}
	}
	return nil, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// commit commits what the folder holds now, to each branch. Somebody's clone gets none.
func (g *Git) commit(ctx context.Context) error {
	if g.clone {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.run(ctx, "add", "--all", "."); err != nil {
		return err
	}
	if g.run(ctx, "rev-parse", "--quiet", "--verify", "HEAD") == nil &&
		g.run(ctx, "diff", "--cached", "--quiet") == nil {
		return nil
	}
	if err := g.run(ctx, "commit", "--quiet", "--allow-empty", "--message", "fleet"); err != nil {
		return err
	}
	for _, branch := range g.branches {
		if err := g.run(ctx, "update-ref", "refs/heads/"+branch, "HEAD"); err != nil {
			return err
		}
	}
	return nil
}

// run runs git without the settings of whoever runs the lab.
func (g *Git) run(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, g.program, args...)
	c.Dir, c.Env = g.folder, g.environ()
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

func (g *Git) environ() []string {
	env := []string{"HOME=" + g.dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "PATH=" + os.Getenv("PATH"),
		"GIT_DIR=" + g.git, "GIT_WORK_TREE=" + g.folder,
		// A clone may belong to somebody else.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}
	for _, who := range []string{"AUTHOR", "COMMITTER"} { // the same folder is the same commit
		env = append(env, "GIT_"+who+"_NAME=lab", "GIT_"+who+"_EMAIL=lab@localhost",
			"GIT_"+who+"_DATE=2026-01-01T00:00:00Z")
	}
	return env
}

// ServeSSH serves the repository to whoever has the deploy key, until the listener closes.
func (g *Git) ServeSSH(l net.Listener, k Keys) error {
	deploy, err := ssh.ParsePrivateKey([]byte(k.Deploy))
	if err != nil {
		return err
	}
	host, err := ssh.ParsePrivateKey([]byte(k.Host))
	if err != nil {
		return err
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata,
		key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), deploy.PublicKey().Marshal()) {
			return nil, errors.New("no deploy key of this repository")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go g.connection(conn, config)
	}
}

func (g *Git) connection(conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close() //nolint:errcheck // the client has gone
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return // the client reports it
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		if c.ChannelType() != "session" {
			c.Reject(ssh.UnknownChannelType, "unknown channel type") //nolint:errcheck // likewise
			continue
		}
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go g.session(channel, requests)
	}
}

// session runs the one program that a Git server runs.
func (g *Git) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close() //nolint:errcheck // the client has gone
	for r := range requests {
		var command struct{ Line string }
		if r.Type != "exec" {
			r.Reply(false, nil) //nolint:errcheck // likewise
			continue
		}
		known := ssh.Unmarshal(r.Payload, &command) == nil &&
			strings.HasPrefix(command.Line, "git-upload-pack ")
		r.Reply(known, nil) //nolint:errcheck // likewise
		if !known {
			return
		}
		status := uint32(0)
		if err := g.upload(channel); err != nil {
			fmt.Fprintln(channel.Stderr(), err)
			status = 1
		}
		//nolint:errcheck // likewise
		channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
		return
	}
}

// ServeHTTP serves the repository over HTTP, under whatever path, to whoever has a token; a public one to
// everybody. Git's own preflights and clones are the same requests.
func (g *Git) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, token, _ := r.BasicAuth(); token == "" && !g.public {
		w.Header().Set("WWW-Authenticate", `Basic realm="Git"`)
		http.Error(w, "the lab's repository is private", http.StatusUnauthorized)
		return
	}
	args, kind, body := []string{"upload-pack", "--strict", "--stateless-rpc"}, "result", io.Reader(r.Body)
	switch {
	case strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
	case !strings.HasSuffix(r.URL.Path, "/info/refs"):
		http.NotFound(w, r) // kustomize takes whatever else it gets for a manifest
		return
	default:
		args, kind, body = append(args, "--advertise-refs"), "advertisement", nil
		if err := g.commit(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-"+kind)
	if body == nil {
		io.WriteString(w, "001e# service=git-upload-pack\n0000") //nolint:errcheck // the client has gone
	}
	c := exec.CommandContext(r.Context(), g.program, append(args, g.git)...)
	c.Env = append(g.environ(), "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
	c.Stdin, c.Stdout = body, w
	c.Run() //nolint:errcheck // the client reports what it lacks
}

func (g *Git) upload(channel io.ReadWriter) error {
	ctx := context.Background() // it ends with the connection
	if err := g.commit(ctx); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, g.program, "upload-pack", "--strict", g.git)
	c.Env, c.Stdout = g.environ(), channel
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	go func() {
		io.Copy(in, channel) //nolint:errcheck // git reports what it lacks
		in.Close()           //nolint:errcheck // likewise
	}()
	return c.Run()
}
