package provider

import (
	"strings"
)

// programming reports whether a word is the name of an exception that a program's own mistakes raise: it says nothing
// of a call.
func programming(w string) bool {
	switch w {
	case "KeyError", "NameError", "AttributeError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndexError", "AssertionError",
		"FileNotFoundError", "ReferenceError", "RangeError", "NotImplementedError", "RecursionError", "UnboundLocalError", "ZeroDivisionError",
		"IndentationError", "UnicodeDecodeError", "UnicodeEncodeError", "NotADirectoryError", "IsADirectoryError", "NullPointerException",
		"ClassCastException", "IllegalStateException":
		return true
	}
	return false
}

// raises reports whether one is named as what happened: "FAILED test_x.py::test_429 - AssertionError: assert ...".
func raises(line string) (found bool) {
	eachWord(line, func(i, end int) bool {
		found = programming(line[i:end]) && happened(line, i, end)
		return !found && !isException(line[i:end])
	})
	return found
}

// ofProgram reports whether a line begins with the name of such an exception.
func ofProgram(line string) bool {
	found, words := false, 0
	eachWord(line, func(i, end int) bool {
		found = programming(line[i:end]) || ofLibrary(line[i:end])
		words++
		return !found && words < 2
	})
	return found
}

// ofLibrary reports whether an exception is of a library that makes no calls to a model: redis.exceptions.ConnectionError.
func ofLibrary(w string) bool {
	root, _, ok := strings.Cut(w, ".")
	return ok && ofOthers(asciiLower(root)+" ")
}

// exceptionEnds are how the names of exceptions end.
var exceptionEnds = [...]string{"Error", "Exception", "Timeout", "Exhausted", "Disconnected", "DeadlineExceeded", "Unavailable",
	"Unauthenticated", "PermissionDenied", "TooManyRequests", "InvalidArgument", "IncompleteRead", "Throttled", "Fault", "TimedOut"}

// isException reports whether a word is the name of an exception: openai.RateLimitError, ThrottlingException.
func isException(w string) bool {
	i := strings.LastIndexAny(w, ".$#")
	inPath := i >= 0
	if inPath {
		if path := w[:i]; strings.HasSuffix(path, "exceptions") || strings.HasSuffix(path, "errors") || strings.HasSuffix(path, ".error") ||
			strings.Contains(path, ".errors.") || strings.Contains(path, ".exceptions.") {
			return true // google.api_core.exceptions.NotFound
		}
		w = w[i+1:]
	} else if w == "Timeout" {
		return false // also a setting's name
	}
	if len(w) < len("Timeout") || w[0] < 'A' || w[0] > 'Z' || w == "Exception" || w == "Unavailable" || strings.ToUpper(w) == w {
		return false
	}
	if !inPath && strings.ToLower(w[1:]) == w[1:] {
		return false // a word of a sentence: "Disconnected from server"
	}
	for _, end := range exceptionEnds {
		if strings.HasSuffix(w, end) {
			return true
		}
	}
	return false
}

// happened reports whether the name of an exception is given as what happened: text or nothing follows it.
func happened(line string, i, end int) bool {
	rest := strings.TrimLeft(line[end:], "'\"`*>")
	if rest == "" || strings.IndexByte(":([{])", rest[0]) >= 0 || strings.HasPrefix(rest, " -") || strings.HasPrefix(rest, " {") || strings.HasPrefix(rest, " }") ||
		strings.HasPrefix(rest, " [") || strings.HasPrefix(rest, " (") || strings.HasPrefix(rest, ", ") || strings.HasPrefix(rest, ". ") || rest == "." {
		return true
	}
	return i == 0 && !startsWithAny(rest, " with ", " on ", " when ", " for ", " after ", " while ", " during ", " in ", " and ", " is ") // a title
}

// ranInto returns where in a line of code an error begins that was printed behind it without a line's end between them:
// "raise self.error(openai.RateLimitError: You exceeded ...". It returns 0 for code alone, where no name of an exception
// is followed by a colon and a sentence.
func ranInto(line string) int {
	found := 0
	line = clip(line, maxMessage)
	if !startsWithAny(line, "raise ", "return ", "await ", "throw ") {
		return 0
	}
	eachWord(line, func(i, end int) bool {
		if rest, ok := strings.CutPrefix(line[end:], ": "); ok && rest != "" && rest[0] >= 'A' && rest[0] <= 'Z' && isException(line[i:end]) &&
			strings.IndexByte(line[:i], '"') < 0 && strings.IndexByte(line[:i], '\'') < 0 {
			found = i
		}
		return found == 0
	})
	return found
}

// isCode reports whether a word is one of the names that errors bear in place of words: rate_limit_error,
// RESOURCE_EXHAUSTED.
func isCode(w string) bool {
	return len(w) > 6 && strings.IndexByte(w[1:], '_') >= 0 && !strings.Contains(w, ".") && !strings.HasPrefix(w, "_")
}

// ofRPC reports whether a word is a code of gRPC and Connect in the brackets in which their clients print it:
// "[resource_exhausted] Error".
func ofRPC(line string, i, end int) bool {
	if i == 0 || line[i-1] != '[' || end >= len(line) || line[end] != ']' {
		return false
	}
	switch line[i:end] {
	case "resource_exhausted", "unauthenticated", "permission_denied", "deadline_exceeded", "invalid_argument", "failed_precondition":
		return true
	}
	return false
}

// errno reports whether a word is an error of the network as Node and POSIX name it.
func errno(w string) bool {
	switch w {
	case "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "ENOTFOUND", "EAI_AGAIN", "EPIPE", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN",
		"ETIMEDOUT", "ESOCKETTIMEDOUT", "ERR_NETWORK", "EPROTO", "ERR_STREAM_PREMATURE_CLOSE", "UND_ERR_SOCKET",
		"UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "DEPTH_ZERO_SELF_SIGNED_CERT",
		"SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "UNABLE_TO_VERIFY_LEAF_SIGNATURE", "CERT_HAS_EXPIRED",
		"ERR_TLS_CERT_ALTNAME_INVALID":
		return true
	}
	return false
}
