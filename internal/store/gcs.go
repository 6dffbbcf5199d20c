package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"
)

// gcs is a store in a bucket of Google Cloud Storage. gocloud's driver for it links a client for gRPC, which
// adds 20 MB to castle and slows down its start.
type gcs struct {
	bucket, prefix string

	mu      sync.Mutex
	objects *storage.ObjectsService // nil before the first request
}

func openGCS(_ context.Context, u *url.URL) (backend, error) {
	name, prefix, err := bucketOf(u)
	if err == nil {
		err = onlyParameters(u)
	}
	return &gcs{bucket: name, prefix: prefix}, err
}

// get returns the client. It looks for credentials first, which may be a request.
func (g *gcs) get(ctx context.Context) (*storage.ObjectsService, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.objects != nil {
		return g.objects, nil
	}
	ctx = context.WithoutCancel(ctx) // tokens are fetched again later
	options := []option.ClientOption{option.WithHTTPClient(http.DefaultClient)}
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); host != "" {
		options = append(options, option.WithEndpoint("http://"+host+"/storage/v1/"))
	} else {
		credentials, err := google.FindDefaultCredentials(ctx, storage.DevstorageReadWriteScope)
		if err != nil {
			return nil, &credentialsError{err}
		}
		options[0] = option.WithHTTPClient(oauth2.NewClient(ctx, credentials.TokenSource))
	}
	service, err := storage.NewService(ctx, options...)
	if err != nil {
		return nil, err
	}
	g.objects = service.Objects
	return g.objects, nil
}

func (g *gcs) close() error { return nil }

func (g *gcs) read(ctx context.Context, key string) ([]byte, error) {
	objects, err := g.get(ctx)
	if err != nil {
		return nil, err
	}
	response, err := objects.Get(g.bucket, g.prefix+key).Context(ctx).Download()
	if err != nil {
		return nil, g.missing(ctx, objects, err)
	}
	value, err := io.ReadAll(response.Body)
	return value, errors.Join(err, response.Body.Close())
}

func (g *gcs) create(ctx context.Context, key string, value []byte) error {
	objects, err := g.get(ctx)
	if err != nil {
		return err
	}
	object := &storage.Object{Name: g.prefix + key, ContentType: "application/octet-stream"}
	// In one request, for an object of which there is no generation.
	_, err = objects.Insert(g.bucket, object).IfGenerationMatch(0).Context(ctx).
		Media(bytes.NewReader(value), googleapi.ChunkSize(0)).Do()
	if statusOf(err) == http.StatusPreconditionFailed {
		return fs.ErrExist
	}
	return err
}

func (g *gcs) list(ctx context.Context, prefix string) (keys []string, err error) {
	objects, err := g.get(ctx)
	if err != nil {
		return nil, err
	}
	err = objects.List(g.bucket).Prefix(g.prefix+prefix).Fields("nextPageToken", "items/name").
		Pages(ctx, func(page *storage.Objects) error {
			for _, object := range page.Items {
				keys = append(keys, strings.TrimPrefix(object.Name, g.prefix))
			}
			return nil
		})
	return keys, err
}

func (g *gcs) remove(ctx context.Context, key string) error {
	objects, err := g.get(ctx)
	if err != nil {
		return err
	}
	return g.missing(ctx, objects, objects.Delete(g.bucket, g.prefix+key).Context(ctx).Do())
}

// missing tells a missing key from a missing bucket, which have the same status.
func (g *gcs) missing(ctx context.Context, objects *storage.ObjectsService, err error) error {
	if statusOf(err) != http.StatusNotFound {
		return err
	}
	_, err = objects.List(g.bucket).MaxResults(1).Fields("nextPageToken").Context(ctx).Do()
	if err != nil {
		return err
	}
	return fs.ErrNotExist
}

func statusOf(err error) int {
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return answer.Code
	}
	return 0
}

func (g *gcs) classify(err error) class {
	var credentials *credentialsError
	var token *oauth2.RetrieveError
	var answer *googleapi.Error
	switch {
	case errors.As(err, &credentials) || errors.As(err, &token):
		return class{kind: Refused}
	case errors.As(err, &answer):
		text := answer.Message
		if text == "" {
			text = http.StatusText(answer.Code)
		}
		return ofStatus(answer.Code, text)
	}
	return network(err)
}
