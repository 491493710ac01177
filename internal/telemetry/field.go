package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// fieldKind is how the values of a field are compared.
type fieldKind int

const (
	numberField fieldKind = iota
	textField
	timeField
	truthField
)

// field is one of an event's, by its name in files.
type field struct {
	name string
	kind fieldKind
	of   func(*sluice.Event) value
}

// fields are those that events have, in the order in which files have them.
func fields() []field {
	number := func(name string, of func(*sluice.Event) int64) field {
		return field{name, numberField, func(e *sluice.Event) value { return value{number: float64(of(e))} }}
	}
	text := func(name string, of func(*sluice.Event) string) field {
		return field{name, textField, func(e *sluice.Event) value { return value{text: of(e)} }}
	}
	return []field{
		text("event", func(e *sluice.Event) string { return string(e.Type) }),
		{"at", timeField, func(e *sluice.Event) value { return value{at: e.At} }},
		text("account", func(e *sluice.Event) string { return e.Account }),
		text("member", func(e *sluice.Event) string { return e.Member }),
		text("lane", func(e *sluice.Event) string { return e.Lane }),
		text("tenant", func(e *sluice.Event) string { return e.Tenant }),
		text("call", func(e *sluice.Event) string { return e.Call }),
		number("attempt", func(e *sluice.Event) int64 { return int64(e.Attempt) }),
		number("throttles", func(e *sluice.Event) int64 { return int64(e.Throttles) }),
		number("wait_ms", func(e *sluice.Event) int64 { return e.Wait.Milliseconds() }),
		number("latency_ms", func(e *sluice.Event) int64 { return e.Latency.Milliseconds() }),
		{"until", timeField, func(e *sluice.Event) value { return value{at: e.Until} }},
		text("dimension", func(e *sluice.Event) string { d, _ := limitOf(e); return d.String() }),
		number("limit", func(e *sluice.Event) int64 { _, limit := limitOf(e); return limit }),
		text("source", func(e *sluice.Event) string { return string(e.Source) }),
		text("kind", kindOf),
		text("error", errorOf),
		number("others_succeeded", func(e *sluice.Event) int64 { return int64(e.Outcome.Others) }),
		text("finish_reason", func(e *sluice.Event) string { return e.Finish }),
		number("usage.input_tokens", func(e *sluice.Event) int64 { return int64(e.Outcome.Usage.Input) }),
		number("usage.cached_input_tokens", func(e *sluice.Event) int64 { return int64(e.Outcome.Usage.CachedInput) }),
		number("usage.output_tokens", func(e *sluice.Event) int64 { return int64(e.Outcome.Usage.Output) }),
		{"cost_usd", numberField, func(e *sluice.Event) value { return value{number: e.Cost} }},
		{"cost_estimated_usd", numberField, func(e *sluice.Event) value { return value{number: e.Estimated} }},
		{"reused", truthField, func(e *sluice.Event) value { return value{truth: e.Reused} }},
		number("active", func(e *sluice.Event) int64 { return int64(e.InFlight) }),
		number("max", func(e *sluice.Event) int64 { return int64(e.Slots) }),
		number("waiting", func(e *sluice.Event) int64 { return int64(e.Waiting) }),
	}
}

// kindOf is the kind of an event that has one.
func kindOf(e *sluice.Event) string {
	if !hasKind(e.Type) {
		return ""
	}
	return e.Outcome.Kind.String()
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

// fieldOf is the field of that name.
func fieldOf(name string) (field, error) {
	all := fields()
	if i := slices.IndexFunc(all, func(f field) bool { return f.name == name }); i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, f := range all {
		names = append(names, f.name)
	}
	return field{}, fmt.Errorf("events have no field %q%s: they have %s", name, provider.DidYouMean(provider.Nearest(name, names)), listed(names))
}

// values are all that a text can be; nil where it can be anything.
func (f *field) values() []string {
	switch f.name {
	case "event":
		var all []string
		for _, t := range EventTypes() {
			all = append(all, string(t))
		}
		return all
	case "kind":
		return names(func(i uint8) string { return sluice.Kind(i).String() })
	case "dimension":
		return names(func(i uint8) string { return limits.Dimension(i).String() })
	case "source":
		return []string{"", string(limits.SourceTold), string(limits.SourceStart), string(limits.SourceHeader), string(limits.SourceRefusal),
			string(limits.SourceMeasured), string(limits.SourceRegistry), string(limits.SourcePublished), string(limits.SourceAtLeast)}
	}
	return nil
}

// names are those of an enumeration, "" for none among them.
func names(of func(uint8) string) []string {
	all := []string{""}
	for i := range uint8(255) {
		name := of(i)
		if strings.Contains(name, "(") { // beyond the last
			break
		}
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}

// listed writes words with commas between.
func listed(words []string) string {
	return strings.TrimPrefix(strings.Join(words, ", "), ", ")
}

// EventTypes are all types of event.
func EventTypes() []limits.EventType {
	return []limits.EventType{
		limits.EventStarted, limits.EventClosed, limits.EventMemberRegistered, limits.EventMemberClosed,
		limits.EventCheckpointSaved, limits.EventCheckpointLoaded, limits.EventCheckpointDamaged,
		limits.EventSlotWaiting, limits.EventSlotAcquired, limits.EventSlotReleased, limits.EventSlotCancelled,
		limits.EventThrottled, limits.EventAttemptFailed, limits.EventGaveUp, limits.EventCooldownStarted, limits.EventCooldownEnded,
		limits.EventLimitsChanged, limits.EventBreaker, limits.EventPaused, limits.EventResumed, limits.EventShared, limits.EventItemDone,
	}
}
