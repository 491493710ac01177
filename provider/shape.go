package provider

import (
	"encoding/json"
	"slices"
	"strings"
)

// errorShaped reports whether an object is an error's own: stricter than speaksOfError, which is asked about what
// stands in an error's place already.
func errorShaped(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) > 0 && slices.ContainsFunc(v[:min(len(v), maxMessages)], errorShaped)
	case map[string]any:
		for k, member := range v {
			if errorMember(asciiLower(k), member) {
				return true
			}
		}
		message, worded := first(v, "message", "detail", "msg", "errorMessage")
		_, isText := message.(string)
		if code, coded := first(v, "code", "status", "statusCode", "status_code", "error_code"); worded && isText && coded {
			return statusOf(code) != 0 || hasName(code) || numbered(code) && v["data"] == nil
		}
		_, hasParam := v["param"]
		_, hasCode := v["code"]
		if worded && isText && hasParam && hasCode {
			return true // OpenAI's, with null for what it does not say
		}
		t, _ := v["type"].(string)
		return worded && isText && (len(v) == 1 || isCode(t))
	}
	return false
}

// hasName reports whether a code is a name.
func hasName(code any) bool {
	s, ok := code.(string)
	return ok && len(s) > 2 && (isLetter(s[0]) || isDigit(s[0]))
}

// errorMember reports whether a member makes an error of its object.
func errorMember(key string, v any) bool {
	s, _ := v.(string)
	switch v := v.(type) {
	case map[string]any:
		if key == "promptfeedback" { // of Gemini, in place of an answer
			_, blocked := first(v, "blockReason", "block_reason")
			return blocked
		}
		if key == "base_resp" {
			n, _ := v["status_code"].(json.Number)
			return n != "" && n != "0"
		}
		if _, stated := v["limit_reached"]; stated {
			return v["limit_reached"] == true
		}
		return len(v) > 0 && (strings.Contains(key, "error") || (key == "cause" || key == "data" || key == "response" || key == "detail") && errorShaped(v))
	case []any:
		return key == "errors" && len(v) > 0
	case bool:
		return v && (key == "error" || key == "iserror" || key == "is_error")
	}
	switch key {
	case "type", "object", "event", "level", "severity", "status":
		low := asciiLower(s)
		return strings.HasSuffix(low, "error") || low == "response.failed" || low == "fatal"
	case "@type":
		return strings.HasSuffix(s, "google.rpc.ErrorInfo") || strings.HasSuffix(s, "google.rpc.QuotaFailure") || strings.HasSuffix(s, "google.rpc.RetryInfo")
	case "code", "errno":
		return errno(s)
	case "name":
		return isException(s)
	case "__type", "$fault":
		return s != ""
	}
	return s != "" && errorKey(key) && !strings.EqualFold(s, "none") && !strings.EqualFold(s, "null")
}

// errorKey reports whether a member of that name holds an error's words or name: "last_error", "errorMessage", and not a
// figure about errors ("error_rate", "error_budget").
func errorKey(key string) bool {
	_, after, ok := strings.Cut(key, "error")
	switch strings.Trim(after, "_-.") {
	case "rate", "rates", "budget", "count", "counts", "rate_limit", "threshold", "handler", "policy", "log", "page":
		return false
	}
	return ok
}

// isObject reports whether a value is an object or a list of them. Text in brackets reads as a list of words.
func isObject(v any) bool {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	_, ok := v.(map[string]any)
	return ok
}

// first returns the first member that an object has.
func first(m map[string]any, names ...string) (any, bool) {
	for _, n := range names {
		if v, ok := m[n]; ok && v != nil {
			return v, true
		}
	}
	return nil, false
}

// ofAPI reports whether an error object is one of an API, which names the error, and not what a program wrote down of
// its own mistakes: {"error": "some text", "timestamp": "..."}.
func ofAPI(v any) bool {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	m, _ := v.(map[string]any)
	for k, member := range m {
		switch asciiLower(k) {
		case "error":
			if s, plain := member.(string); !plain || isCode(s) {
				return true
			}
		case "timestamp", "message", "details", "stack":
		default:
			return true
		}
	}
	return m["message"] != nil && m["error"] == nil
}
