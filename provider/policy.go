package provider

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/limits"
)

// policy is one entry of RateLimit or RateLimit-Policy. In draft 7 of the IETF (draft-ietf-httpapi-ratelimit-headers) RateLimit has one:
//
//	RateLimit: limit=100, remaining=50, reset=5
//	RateLimit-Policy: 100;w=10
//
// From draft 8 on there is one for each policy:
//
//	RateLimit: "default";r=50;t=30
//	RateLimit-Policy: "default";q=100;w=60
type policy struct {
	name   string // of draft 7's entries in RateLimit-Policy: the limit
	params string
}

// policies yields the entries of a header. A comma within quotes separates nothing.
func policies(values []string) func(yield func(policy) bool) {
	return func(yield func(policy) bool) {
		for _, v := range values {
			for v != "" {
				entry, rest := cut(v, ',')
				name, params := cut(entry, ';')
				if !yield(policy{strings.Trim(strings.TrimSpace(name), `"`), params}) {
					return
				}
				v = rest
			}
		}
	}
}

// cut splits s at the first separator outside of quotes.
func cut(s string, sep byte) (before, after string) {
	quoted := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// param returns the number of a parameter.
func (p policy) param(name string) (n int64, ok bool) {
	for rest := p.params; rest != ""; {
		var each string
		each, rest = cut(rest, ';')
		if key, value, _ := strings.Cut(each, "="); strings.EqualFold(strings.TrimSpace(key), name) {
			return count([]string{value})
		}
	}
	return 0, false
}

// window returns the period of a policy; 0 if it states none.
func (p policy) window() time.Duration {
	w, _ := p.param("w")
	return errtext.Scaled(float64(w), time.Second)
}

// period returns the period that a response states for a limit: in the header of the limit ("100, 100;w=60"), or in RateLimit-Policy; 0 if
// it states none.
func period(h http.Header, header string, limit int64) time.Duration {
	for _, values := range [...][]string{h[header], h["Ratelimit-Policy"]} {
		for p := range policies(values) {
			quota, ok := count([]string{p.name})
			if !ok {
				quota, _ = p.param("q")
			}
			if w := p.window(); w > 0 && quota == limit {
				return w
			}
		}
	}
	return 0
}

// combined returns the limits in the header RateLimit, the one with the smallest remainder first.
func combined(h http.Header) (all []limits.Reading) {
	values := h["Ratelimit"]
	if len(values) == 0 {
		return nil
	}
	one := policy{params: strings.ReplaceAll(strings.Join(values, ";"), ",", ";")}
	if limit, ok := one.param("limit"); ok {
		return one.add(nil, limit, "remaining", "reset", period(h, "", limit))
	}
	for p := range policies(values) {
		for stated := range policies(h["Ratelimit-Policy"]) {
			if quota, ok := stated.param("q"); ok && stated.name == p.name {
				all = p.add(all, quota, "r", "t", stated.window())
			}
		}
	}
	return all
}

// add adds the limit of a policy to others, before those with a larger remainder.
func (p policy) add(all []limits.Reading, limit int64, remaining, reset string, period time.Duration) []limits.Reading {
	left, ok := p.param(remaining)
	if !ok || limit <= 0 {
		return all
	}
	r := limits.Reading{Dimension: limits.Requests, Limit: limit, Remaining: min(left, limit), Period: period, Window: true}
	if t, ok := p.param(reset); ok {
		r.Reset, r.ResetSlack = errtext.Scaled(float64(t), time.Second), time.Second
	}
	if len(all) > 0 && r.Remaining < all[0].Remaining {
		return append([]limits.Reading{r}, all...)
	}
	return append(all, r)
}
