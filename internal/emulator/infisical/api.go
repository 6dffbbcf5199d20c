package infisical

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// call is a request with its parameters: those of a GET are in the query, all others in a JSON body. Each
// call uses a part of the body; encoding/json ignores the case of its names.
type call struct {
	r      *http.Request
	folder Folder
	body   struct {
		ClientID, ClientSecret               string
		WorkspaceID, Environment, SecretPath string
		NewSecretName                        string
		SecretValue, SecretComment           *string
		SecretReminderNote                   string
		SecretReminderRepeatDays             int64
		SecretMetadata                       []Metadata
		TagIDs                               []string
	}
}

// handler answers a call, under the server's mutex.
type handler func(*call) (any, error)

// Handler serves the API, at the root of a host.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/auth/universal-auth/login", s.answer(s.login))
	for pattern, handle := range map[string]handler{
		"GET /api/v1/auth/universal-auth/identities/{identity}/client-secrets/{secret}": s.clientSecret,
		"GET /api/v3/secrets/raw":          s.list,
		"GET /api/v3/secrets/raw/id/{id}":  one(s.findByID),
		"GET /api/v3/secrets/raw/{key}":    one(s.find),
		"POST /api/v3/secrets/raw/{key}":   one(s.create),
		"PATCH /api/v3/secrets/raw/{key}":  one(s.update),
		"DELETE /api/v3/secrets/raw/{key}": one(s.remove),
	} {
		mux.HandleFunc(pattern, s.answer(s.authorised(handle)))
	}
	mux.HandleFunc("/", s.answer(func(c *call) (any, error) {
		return nil, notFound("Route %s:%s not found", c.r.Method, c.r.URL.Path)
	}))
	return mux
}

// answer writes a result as a response and records the request.
func (s *Server) answer(handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer s.locked()()
		status := http.StatusOK
		result, err := s.run(r, handle)
		if err != nil {
			f, _ := errors.AsType[failure](err)
			f.RequestID = "req-" + uuid()[:8]
			if f.StatusCode == http.StatusTooManyRequests && s.retry > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(s.retry.Seconds())))
			}
			status, result = f.StatusCode, f
		}
		s.requests = append(s.requests, Request{Method: r.Method, Path: r.URL.Path, Status: status})
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(result) //nolint:errcheck // the client has gone
	}
}

func (s *Server) run(r *http.Request, handle handler) (any, error) {
	if s.throttled > 0 {
		s.throttled--
		return nil, fail(http.StatusTooManyRequests, "RateLimitExceeded",
			"Rate limit exceeded. Please try again later.")
	}
	return handle(&call{r: r})
}

// read reads the parameters of a call that the server accepts.
func (c *call) read() error {
	q := c.r.URL.Query()
	c.folder = Folder{q.Get("workspaceId"), q.Get("environment"), q.Get("secretPath")}.clean()
	if c.r.Method == http.MethodGet {
		return nil
	}
	if err := json.NewDecoder(c.r.Body).Decode(&c.body); err != nil {
		return fail(http.StatusBadRequest, "BadRequest", "Body is not valid JSON")
	}
	c.folder = Folder{c.body.WorkspaceID, c.body.Environment, c.body.SecretPath}.clean()
	return nil
}

func (s *Server) login(c *call) (any, error) {
	if err := c.read(); err != nil {
		return nil, err
	}
	if !equal(c.body.ClientID, s.config.ClientID) || !equal(c.body.ClientSecret, s.config.ClientSecret) {
		return nil, fail(http.StatusUnauthorized, "UnauthorizedError", "Invalid credentials")
	}
	const seconds = 2592000 // thirty days, the server's default for a machine identity
	claims, err := json.Marshal(map[string]string{"identityId": identityID, "clientSecretId": secretID})
	if err != nil {
		return nil, err
	}
	token := "eyJ9." + base64.RawURLEncoding.EncodeToString(claims) + "." + uuid()
	s.tokens[token] = true
	return map[string]any{
		"accessToken": token, "tokenType": "Bearer", "expiresIn": seconds, "accessTokenMaxTTL": seconds,
	}, nil
}

// The ids that the token of a login names.
const (
	identityID = "5a1e0000-0000-4000-8000-000000000001"
	secretID   = "5a1e0000-0000-4000-8000-000000000002"
)

// clientSecret shows the client secret, not its value, to an identity that may read identities.
func (s *Server) clientSecret(c *call) (any, error) {
	switch {
	case !s.config.Reads:
		return nil, fail(http.StatusForbidden, "PermissionDenied", "You are not allowed to read on identity")
	case c.r.PathValue("identity") != identityID || c.r.PathValue("secret") != secretID:
		return nil, notFound("Client secret with ID '%s' not found", c.r.PathValue("secret"))
	}
	return map[string]any{"clientSecretData": map[string]any{"id": secretID, "createdAt": s.config.Made.UTC(),
		"clientSecretTTL": int64(s.config.TTL.Seconds()), "isClientSecretRevoked": false}}, nil
}

func equal(a, b string) bool {
	return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

func (s *Server) authorised(handle handler) handler {
	return func(c *call) (any, error) {
		token, ok := strings.CutPrefix(c.r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return nil, fail(http.StatusUnauthorized, "UnauthorizedError", "Token missing")
		}
		if !s.tokens[token] {
			return nil, fail(http.StatusForbidden, "TokenError",
				"Your token is invalid. Please re-authenticate.")
		}
		if err := c.read(); err != nil {
			return nil, err
		}
		return handle(c)
	}
}

// in returns the secrets of the call's folder.
func (s *Server) in(f Folder) (map[string]*Secret, error) {
	if s.forbidden[f.Workspace] {
		return nil, fail(http.StatusForbidden, "PermissionDenied",
			"You do not have permission to access this project")
	}
	if secrets := s.folders[f]; secrets != nil {
		return secrets, nil
	}
	for known := range s.folders {
		if known.Workspace == f.Workspace {
			return nil, notFound("Folder with path '%s' in environment with slug '%s' not found", f.Path,
				f.Environment)
		}
	}
	return nil, notFound("Project with ID '%s' not found", f.Workspace)
}

func (s *Server) list(c *call) (any, error) {
	secrets, err := s.in(c.folder)
	if err != nil {
		return nil, err
	}
	all := []any{}
	for _, key := range slices.Sorted(maps.Keys(secrets)) {
		all = append(all, secrets[key].raw())
	}
	return map[string]any{"secrets": all, "imports": []any{}}, nil
}

// one is a handler for a call whose answer is one secret.
func one(handle func(*call) (*Secret, error)) handler {
	return func(c *call) (any, error) {
		secret, err := handle(c)
		if err != nil {
			return nil, err
		}
		return map[string]any{"secret": secret.raw()}, nil
	}
}

func (s *Server) find(c *call) (*Secret, error) {
	secrets, err := s.in(c.folder)
	if err != nil {
		return nil, err
	}
	key := c.r.PathValue("key")
	if secrets[key] == nil {
		return nil, notFound("Secret with name '%s' not found", key)
	}
	return secrets[key], nil
}

func (s *Server) findByID(c *call) (*Secret, error) {
	for _, folder := range s.folders {
		for _, secret := range folder {
			if secret.ID == c.r.PathValue("id") {
				return secret, nil
			}
		}
	}
	return nil, notFound("Secret with ID '%s' not found", c.r.PathValue("id"))
}

func (s *Server) create(c *call) (*Secret, error) {
	secrets, err := s.in(c.folder)
	if err != nil {
		return nil, err
	}
	secret := &Secret{Folder: c.folder, Key: c.r.PathValue("key")}
	if secrets[secret.Key] != nil {
		return nil, fail(http.StatusBadRequest, "BadRequest", "Secret already exist")
	}
	c.set(secret)
	s.save(secret)
	return secret, nil
}

func (s *Server) update(c *call) (*Secret, error) {
	secret, err := s.find(c)
	if err != nil {
		return nil, err
	}
	if name := c.body.NewSecretName; name != "" && name != secret.Key {
		if s.folders[secret.Folder][name] != nil {
			return nil, fail(http.StatusBadRequest, "BadRequest", "Secret with the new name already exist")
		}
		delete(s.folders[secret.Folder], secret.Key)
		secret.Key = name
	}
	c.set(secret)
	s.save(secret)
	return secret, nil
}

func (s *Server) remove(c *call) (*Secret, error) {
	secret, err := s.find(c)
	if err == nil {
		delete(s.folders[secret.Folder], secret.Key)
	}
	return secret, err
}

// set gives a secret the values of the call.
func (c *call) set(secret *Secret) {
	if c.body.SecretValue != nil {
		secret.Value = *c.body.SecretValue
	}
	if c.body.SecretComment != nil {
		secret.Comment = *c.body.SecretComment
	}
	secret.ReminderNote, secret.ReminderDays = c.body.SecretReminderNote, c.body.SecretReminderRepeatDays
	secret.Metadata, secret.TagIDs = c.body.SecretMetadata, c.body.TagIDs
}

func (s *Secret) raw() map[string]any {
	tags := []map[string]string{}
	for _, id := range s.TagIDs {
		tags = append(tags, map[string]string{"id": id})
	}
	return map[string]any{
		"id": s.ID, "version": s.Version, "type": "shared", "workspace": s.Folder.Workspace,
		"environment": s.Folder.Environment, "secretPath": s.Folder.Path, "secretKey": s.Key,
		"secretValue": s.Value, "secretComment": s.Comment,
		"updatedAt":          s.Updated.Format("2006-01-02T15:04:05.000Z"),
		"secretReminderNote": s.ReminderNote, "secretReminderRepeatDays": s.ReminderDays,
		"secretMetadata": s.Metadata, "tags": tags,
	}
}

// failure is an error body of the API.
type failure struct {
	RequestID  string `json:"reqId"`
	StatusCode int    `json:"statusCode"`
	Message    string `json:"message"`
	Name       string `json:"error"`
}

func (f failure) Error() string { return f.Message }

func fail(status int, name, format string, args ...any) error {
	return failure{StatusCode: status, Name: name, Message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return fail(http.StatusNotFound, "NotFound", format, args...)
}
