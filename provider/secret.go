package provider

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/redact"
)

// Redact returns a text that others wrote, such as an error message, without the given keys, in any form, and without
// any text that looks like a key: sk-..., AIza..., a value behind "Bearer ", or a value whose name says that it is a key or a
// password. Escapes do not hide a key. Given keys of fewer than 4 characters stay. JSON stays valid JSON.
func Redact(s string, keys ...string) string { return redact.New(keys...).Text(s) }

// RedactKeys returns data without the given keys, and without what can only be a key that a provider issued. Names, paths and ids
// stay that merely resemble a key. JSON stays valid JSON.
func RedactKeys(s string, keys ...string) string { return redact.New(keys...).Data(s) }

// IsSecretHeader reports whether a header of that name may hold a secret.
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
