package infisical

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const tokenSeconds = 2592000 // thirty days, the server's default for a machine identity

func (s *Server) login(r *http.Request) (any, error) {
	var credentials struct {
		ClientID     string `json:"clientId"`
		ClientSecret string `json:"clientSecret"`
	}
	if err := json.NewDecoder(r.Body).Decode(&credentials); err != nil {
		return nil, badRequest("Body is not valid JSON")
	}
	if !equal(credentials.ClientID, s.config.ClientID) ||
		!equal(credentials.ClientSecret, s.config.ClientSecret) {
		return nil, unauthorised("Invalid credentials")
	}
	token := "st." + uuid()
	s.tokens[token] = true
	return map[string]any{
		"accessToken": token, "tokenType": "Bearer", "expiresIn": tokenSeconds,
		"accessTokenMaxTTL": tokenSeconds,
	}, nil
}

func equal(a, b string) bool {
	return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

func (s *Server) authorised(handle func(*http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return nil, unauthorised("Token missing")
		}
		if !s.tokens[token] {
			return nil, failure{StatusCode: http.StatusForbidden, Name: "TokenError",
				Message: "Your token is invalid. Please re-authenticate."}
		}
		return handle(r)
	}
}

// answer writes a result as a response and records the request.
func (s *Server) answer(handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer s.locked()()
		result, err := any(nil), s.busy()
		if err == nil {
			result, err = handle(r)
		}
		status := http.StatusOK
		if err != nil {
			var f failure
			if !errors.As(err, &f) {
				f = failure{Message: err.Error(), Name: "InternalServerError"}
				f.StatusCode = http.StatusInternalServerError
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

func unauthorised(message string) error {
	return failure{StatusCode: http.StatusUnauthorized, Message: message, Name: "UnauthorizedError"}
}
