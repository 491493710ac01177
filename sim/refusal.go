package sim

import (
	"encoding/json"
	"time"
)

// statusOverloaded is Anthropic's own status.
const statusOverloaded = 529

// reason is why a call was not answered.
type reason int

const (
	// Throttles, in the order in which they are checked.
	reasonStray reason = iota
	reasonStorm
	reasonSpent
	reasonConcurrent
	reasonShortage
	// Failures of an admitted call.
	reasonServerError
	reasonOverloaded
	// What is wrong with the request itself.
	reasonBadKey
	reasonNoKey
	reasonNotJSON
	reasonWrongType
	reasonNoVersion
	reasonNoModel
	reasonNoPrompts
	reasonNoMaxTokens
	reasonUnknownModel
	reasonBadRequest
	reasonTooLong
	reasonUnknownPath
)

// refusal is an error answer.
type refusal struct {
	reason   reason
	shortage shortage // of reasonShortage
	status   int      // of reasonStorm
	param    string   // of reasonWrongType
	vague    bool     // says no more than it must

	wait time.Duration // until the call may pass
	hint bool          // the client is told the wait
}

// name is the key under which [Stats] counts the refusal.
func (r *refusal) name() string {
	switch r.reason {
	case reasonStray:
		return "stray"
	case reasonStorm:
		return "storm"
	case reasonSpent:
		return "spent"
	case reasonConcurrent, reasonShortage:
		return r.shortage.dimension.String()
	case reasonServerError:
		return "server_error"
	case reasonOverloaded:
		return "overloaded"
	case reasonBadKey, reasonNoKey:
		return "auth"
	default:
		return "bad_request"
	}
}

// throttle reports whether the refusal is a limit's: nothing is wrong with the
// request, and it was not admitted.
func (r *refusal) throttle() bool { return r.reason <= reasonShortage }

// marshal encodes the body of an error.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only strings in it
	}
	return b
}

// waitText writes a wait as the bodies do ("174ms", "5.954s", "7m12s"),
// rounded up to the millisecond.
func waitText(d time.Duration) string { return wholeMillis(d).String() }

// wholeMillis rounds d up to a whole millisecond.
func wholeMillis(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d
}
