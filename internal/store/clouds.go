package store

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// namesBucket reports whether a system says that it is the bucket that does not exist, not a key.
func namesBucket(err error) bool {
	var aws smithy.APIError
	return errors.As(err, &aws) && aws.ErrorCode() == "NoSuchBucket" ||
		bloberror.HasCode(err, bloberror.ContainerNotFound)
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

// ofS3 classifies what S3 and servers like it answer.
func ofS3(err error) class {
	var answer *awshttp.ResponseError
	status := 0
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	var reported smithy.APIError
	if !errors.As(err, &reported) {
		if status != 0 && status != http.StatusOK {
			return ofStatus(status, http.StatusText(status))
		}
		return network(err)
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

// ofAzure classifies what Azure's Blob Storage answers.
func ofAzure(err error) class {
	var reported *azcore.ResponseError
	if !errors.As(err, &reported) {
		var credentials interface{ NonRetriable() } // what azidentity's errors have in common
		if errors.As(err, &credentials) {
			return class{kind: Refused}
		}
		return network(err)
	}
	c := ofStatus(reported.StatusCode, reported.ErrorCode)
	switch bloberror.Code(reported.ErrorCode) {
	case bloberror.ContainerBeingDeleted, bloberror.ContainerDisabled:
		c.kind, c.passes = Missing, false
	case bloberror.AccountIsDisabled:
		c.kind, c.passes = Refused, false
	}
	return c
}
