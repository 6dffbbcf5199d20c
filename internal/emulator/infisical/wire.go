package infisical

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// failure is an error body of the API.
type failure struct {
	RequestID  string `json:"reqId"`
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
	Name       string `json:"error"`
	retryAfter time.Duration
}

func (f failure) Error() string { return f.Message }

func notFound(format string, args ...any) error {
	return failure{StatusCode: http.StatusNotFound, Message: fmt.Sprintf(format, args...), Name: "NotFound"}
}

func badRequest(message string) error {
	return failure{StatusCode: http.StatusBadRequest, Message: message, Name: "BadRequest"}
}

// body is what POST, PATCH and DELETE send; each uses a part of it.
type body struct {
	WorkspaceID              string     `json:"workspaceId"`
	Environment              string     `json:"environment"`
	SecretPath               string     `json:"secretPath"`
	Type                     string     `json:"type"`
	NewSecretName            string     `json:"newSecretName"`
	SecretValue              *string    `json:"secretValue"`
	SecretComment            *string    `json:"secretComment"`
	SecretReminderNote       string     `json:"secretReminderNote"`
	SecretReminderRepeatDays int64      `json:"secretReminderRepeatDays"`
	SecretMetadata           []Metadata `json:"secretMetadata"`
	TagIDs                   []string   `json:"tagIds"`
}

func (b body) folder() Folder {
	return Folder{Workspace: b.WorkspaceID, Environment: b.Environment, Path: b.SecretPath}.clean()
}

func decode(r *http.Request) (body, error) {
	var b body
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return b, badRequest("Body is not valid JSON")
	}
	return b, nil
}

type rawTag struct {
	ID string `json:"id"`
}

type rawSecret struct {
	ID                       string     `json:"id"`
	Version                  int        `json:"version"`
	Workspace                string     `json:"workspace"`
	Type                     string     `json:"type"`
	Environment              string     `json:"environment"`
	SecretPath               string     `json:"secretPath"`
	SecretKey                string     `json:"secretKey"`
	SecretValue              string     `json:"secretValue"`
	SecretComment            string     `json:"secretComment"`
	UpdatedAt                string     `json:"updatedAt"`
	SecretReminderNote       string     `json:"secretReminderNote"`
	SecretReminderRepeatDays int64      `json:"secretReminderRepeatDays"`
	SecretMetadata           []Metadata `json:"secretMetadata"`
	Tags                     []rawTag   `json:"tags"`
}

func (s *Secret) raw() rawSecret {
	r := rawSecret{
		ID: s.ID, Version: s.Version, Workspace: s.Workspace, Type: "shared", Environment: s.Environment,
		SecretPath: s.Path, SecretKey: s.Key, SecretValue: s.Value, SecretComment: s.Comment,
		UpdatedAt:          s.Updated.Format("2006-01-02T15:04:05.000Z"),
		SecretReminderNote: s.ReminderNote, SecretReminderRepeatDays: s.ReminderDays,
		SecretMetadata: s.Metadata, Tags: []rawTag{},
	}
	for _, id := range s.TagIDs {
		r.Tags = append(r.Tags, rawTag{ID: id})
	}
	return r
}

// answer turns a result into a response and notes it.
func (s *Server) answer(handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		result, err := any(nil), s.busy()
		if err == nil {
			result, err = handle(r)
		}
		status := http.StatusOK
		if err != nil {
			var f failure
			if !errors.As(err, &f) {
				f = failure{StatusCode: http.StatusInternalServerError, Message: err.Error(), Name: "InternalServerError"}
			}
			f.RequestID = "req-" + uuid()[:8]
			if f.retryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(f.retryAfter.Seconds())))
			}
			status, result = f.StatusCode, f
		}
		s.requests = append(s.requests, Request{Method: r.Method, Path: r.URL.Path, Status: status})
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(result) //nolint:errcheck // the client has gone
	}
}

func (s *Server) busy() error {
	if s.throttled == 0 {
		return nil
	}
	s.throttled--
	return failure{StatusCode: http.StatusTooManyRequests, Name: "RateLimitExceeded",
		Message: "Rate limit exceeded. Please try again later.", retryAfter: s.retry}
}
