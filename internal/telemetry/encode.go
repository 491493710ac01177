package telemetry

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/limits"
)

// appendEvent appends e as a line of a file of events. message is the text of its error, without secrets. A field of zero is
// omitted, except the counts of calls. docs/reference/json.md describes the fields.
func appendEvent(b []byte, e *sluice.Event, message string) []byte {
	b = append(b, `{"event":`...)
	b = jsonscan.AppendString(b, string(e.Type))
	b = append(b, `,"at":"`...)
	b = e.At.AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	b = appendText(b, `,"account":`, e.Account)
	b = appendText(b, `,"member":`, e.Member)
	b = appendText(b, `,"lane":`, e.Lane)
	b = appendText(b, `,"tenant":`, e.Tenant)
	b = appendText(b, `,"call":`, e.Call)
	b = appendCount(b, `,"attempt":`, int64(e.Attempt))
	b = appendCount(b, `,"throttles":`, int64(e.Throttles))
	b = appendCount(b, `,"wait_ms":`, e.Wait.Milliseconds())
	b = appendCount(b, `,"latency_ms":`, e.Latency.Milliseconds())
	if !e.Until.IsZero() {
		b = append(b, `,"until":"`...)
		b = e.Until.AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	dimension, limit := limitOf(e)
	b = appendText(b, `,"dimension":`, dimension.String())
	b = appendCount(b, `,"limit":`, limit)
	b = appendText(b, `,"source":`, string(e.Source))
	if hasKind(e.Type) {
		b = appendText(b, `,"kind":`, e.Outcome.Kind.String())
	}
	b = appendText(b, `,"error":`, message)
	b = appendCount(b, `,"others_succeeded":`, int64(e.Outcome.Others))
	b = appendText(b, `,"finish_reason":`, e.Finish)
	b = appendUsage(b, &e.Outcome)
	b = appendDollars(b, `,"cost_usd":`, e.Cost)
	b = appendDollars(b, `,"cost_estimated_usd":`, e.Estimated)
	if e.Reused {
		b = append(b, `,"reused":true`...)
	}
	b = append(b, `,"active":`...)
	b = strconv.AppendInt(b, int64(e.InFlight), 10)
	b = append(b, `,"max":`...)
	b = strconv.AppendInt(b, int64(e.Slots), 10)
	b = append(b, `,"waiting":`...)
	b = strconv.AppendInt(b, int64(e.Waiting), 10)
	return append(b, "}\n"...)
}

// limitOf is the limit that an event speaks of: of a refusal the one that it names.
func limitOf(e *sluice.Event) (limits.Dimension, int64) {
	if e.Type == limits.EventThrottled {
		return e.Outcome.Dimension, e.Outcome.Limit
	}
	return e.Dimension, e.Limit
}

// hasKind reports whether events of that type say how something ended, or why.
func hasKind(t limits.EventType) bool {
	switch t {
	case limits.EventSlotReleased, limits.EventThrottled, limits.EventAttemptFailed, limits.EventGaveUp, limits.EventItemDone,
		limits.EventCooldownStarted:
		return true
	}
	return false
}

func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return jsonscan.AppendString(append(b, name...), text)
}

func appendCount(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendUsage(b []byte, o *sluice.Outcome) []byte {
	if !o.HasUsage {
		return b
	}
	b = append(b, `,"usage":{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(o.Usage.Input), 10)
	b = append(b, `,"cached_input_tokens":`...)
	b = strconv.AppendInt(b, int64(o.Usage.CachedInput), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(o.Usage.Output), 10)
	return append(b, '}')
}

func appendDollars(b []byte, name string, usd float64) []byte {
	if usd == 0 || math.IsNaN(usd) || math.IsInf(usd, 0) {
		return b
	}
	return strconv.AppendFloat(append(b, name...), usd, 'f', -1, 64)
}

// errorOf is what the error of an event says, without the counts of tries, which stand beside it.
func errorOf(e *sluice.Event) string {
	err := e.Outcome.Err
	if call, ok := errors.AsType[*sluice.CallError](err); ok && call.Err != nil {
		return call.Reason()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}
