package provider

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/redact"
)

// Redact removes secrets from another program's text, such as an error message. Redact removes the given keys in any common encoding, except
// keys of fewer than 4 characters. Redact also removes texts that look like a key: sk-..., AIza..., a value after "Bearer ", or a value
// named key or password. If s is valid JSON, the result is valid JSON.
func Redact(s string, keys ...string) string { return redact.New(keys...).Text(s) }

// RedactKeys removes the given keys, and other texts that can only be provider keys, from data. RedactKeys keeps names, paths and IDs that
// resemble a key. If s is valid JSON, the result is valid JSON.
func RedactKeys(s string, keys ...string) string { return redact.New(keys...).Data(s) }

// IsSecretHeader reports whether a header with this name may contain a secret, as the header Authorization may.
func IsSecretHeader(name string) bool {
	name = strings.ToLower(name)
	for _, word := range [...]string{
		"auth", "key", "token", "secret", "cookie", "password", "credential",
		"jwt", "assertion", "oidc", "bearer", // of proxies that let people in
	} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// leastSecret is the length below which a word of a header is not looked for in answers: "Bearer" and "Basic" are some.
const leastSecret = 8

// secretsOf returns what must be kept out of all that comes back of a request: its key, if it has one, and what stands in
// headers that hold secrets.
func secretsOf(h http.Header, key string) []string {
	secrets := make([]string, 0, 2)
	if key != "" {
		secrets = append(secrets, key)
	}
	for name, values := range h {
		if !IsSecretHeader(name) {
			continue
		}
		for _, value := range values {
			for word := range strings.FieldsSeq(value) {
				if len(word) >= leastSecret && !slices.Contains(secrets, word) {
					secrets = append(secrets, word)
				}
			}
		}
	}
	return secrets
}
