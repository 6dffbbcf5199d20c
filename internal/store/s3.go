package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
)

// bucket is a store in a bucket of S3, or of a server with its API and conditional writes.
type bucket struct {
	client       *s3.Client
	name, prefix string // of the keys in it

	encryption types.ServerSideEncryption
	kmsKey     *string

	answers atomic.Bool // the bucket is known to exist
}

// credentialsError reports that there are no credentials.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return "no credentials: " + e.err.Error() }

func (e *credentialsError) Unwrap() error { return e.err }

func openS3(ctx context.Context, u *url.URL) (backend, error) {
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	err := onlyParameters(u, "region", "endpoint", "profile", "use_path_style", "ssetype", "kmskeyid")
	if err != nil {
		return nil, err
	}
	query, pathStyle := u.Query(), false
	if value := query.Get("use_path_style"); value != "" {
		if pathStyle, err = strconv.ParseBool(value); err != nil {
			return nil, errors.New("use_path_style must be true or false")
		}
	}
	settings, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}), // it would warn
		config.WithRegion(query.Get("region")), config.WithSharedConfigProfile(query.Get("profile")))
	if err != nil {
		return nil, err
	}
	if settings.Region == "" {
		return nil, errors.New("it needs ?region=… (environment: AWS_REGION)")
	}
	return &bucket{
		name: u.Host, prefix: prefix, encryption: types.ServerSideEncryption(query.Get("ssetype")),
		kmsKey: optional(query.Get("kmskeyid")),
		client: s3.NewFromConfig(settings, func(o *s3.Options) {
			o.Retryer, o.UsePathStyle = aws.NopRetryer{}, pathStyle
			if endpoint := optional(query.Get("endpoint")); endpoint != nil {
				o.BaseEndpoint = endpoint
			}
		}),
	}, nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// credentials reports whether there are some; the SDK caches them.
func (b *bucket) credentials(ctx context.Context) error {
	if _, err := b.client.Options().Credentials.Retrieve(ctx); err != nil {
		return &credentialsError{err}
	}
	return nil
}

func (b *bucket) read(ctx context.Context, key string) ([]byte, error) {
	if err := b.credentials(ctx); err != nil {
		return nil, err
	}
	object, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: new(b.prefix + key)})
	if err != nil {
		return nil, b.absent(ctx, err)
	}
	b.answers.Store(true)
	value, err := io.ReadAll(object.Body)
	return value, errors.Join(err, object.Body.Close())
}

func (b *bucket) create(ctx context.Context, key string, value []byte) error {
	if err := b.credentials(ctx); err != nil {
		return err
	}
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: new(b.prefix + key), Body: bytes.NewReader(value), IfNoneMatch: new("*"),
		ContentType: new("application/octet-stream"), ServerSideEncryption: b.encryption,
		SSEKMSKeyId: b.kmsKey,
	})
	if code(err) == "PreconditionFailed" {
		return fs.ErrExist
	}
	return err
}

func (b *bucket) list(ctx context.Context, prefix string) (map[string]int64, error) {
	if err := b.credentials(ctx); err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.name,
		Prefix: new(b.prefix + prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, object := range page.Contents {
			sizes[strings.TrimPrefix(aws.ToString(object.Key), b.prefix)] = aws.ToInt64(object.Size)
		}
	}
	b.answers.Store(true)
	return sizes, nil
}

func (b *bucket) remove(ctx context.Context, key string) error {
	if err := b.credentials(ctx); err != nil {
		return err
	}
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: new(b.prefix + key)})
	return err
}

// absent turns the answer that there is no such key into fs.ErrNotExist. Not all servers tell a missing key
// from a missing bucket, so that the first such answer leads to a request for the bucket.
func (b *bucket) absent(ctx context.Context, err error) error {
	if code(err) == "NoSuchBucket" || ofS3(err).kind != Missing {
		return err
	}
	if !b.answers.Load() {
		_, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.name, MaxKeys: new(int32(1))})
		if err != nil {
			return err
		}
		b.answers.Store(true)
	}
	return fs.ErrNotExist
}

func (b *bucket) classify(err error) class {
	if errors.As(err, new(*credentialsError)) {
		return class{kind: Refused}
	}
	return ofS3(err)
}

func (b *bucket) close() error { return nil }

// code returns the name that a server gives its error; "" if it has none.
func code(err error) string {
	if reported, is := errors.AsType[smithy.APIError](err); is {
		return reported.ErrorCode()
	}
	return ""
}

// ofS3 classifies what S3 and servers like it answer.
func ofS3(err error) class {
	status := 0
	if answer, is := errors.AsType[*awshttp.ResponseError](err); is {
		status = answer.HTTPStatusCode()
	}
	reported, is := errors.AsType[smithy.APIError](err)
	if !is {
		if status != 0 && status != http.StatusOK {
			return ofStatus(status, http.StatusText(status))
		}
		return connection(err)
	}
	c := ofStatus(status, reported.ErrorCode()+": "+reported.ErrorMessage())
	switch reported.ErrorCode() {
	case "NoSuchBucket", "NoSuchKey", "NotFound":
		c.kind = Missing
	case "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded":
		c.kind, c.passes = Full, false
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
		"TokenRefreshRequired":
		c.kind, c.passes = Refused, false
	case "RequestTimeTooSkewed": // the SDK has learnt the server's time
		c.kind, c.passes = Refused, true
	case "ConditionalRequestConflict", "OperationAborted", "SlowDown", "RequestTimeout":
		c.kind, c.passes = Away, true
	}
	return c
}

// ofStatus classifies an HTTP status.
func ofStatus(status int, text string) class {
	c := class{kind: Failed, text: fmt.Sprintf("%s (HTTP status %d)", text, status)}
	switch {
	case status == http.StatusInsufficientStorage:
		c.kind = Full
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		c.kind = Refused
	case status == http.StatusNotFound:
		c.kind = Missing
	case status == http.StatusNotImplemented:
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests,
		status == http.StatusRequestTimeout:
		c.kind, c.passes = Away, true
	}
	return c
}
