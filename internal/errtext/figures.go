package errtext

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Figures are the numbers of a rejection; 0 where it does not state one.
type Figures struct {
	Dimension              limits.Dimension
	Limit, Used, Requested int64
	Period                 time.Duration // to which Limit refers; 0: a minute or a day, as Dimension says
}

// Wait is how long it takes until the request fits: buckets refill evenly, which the waits in the bodies of OpenAI and Groq
// confirm to the millisecond (https://github.com/continuedev/continue/issues/11472: Limit 30000, Used 18928, Requested 11159
// gives 174 ms).
func (f Figures) Wait() time.Duration {
	over := f.Used + f.Requested - f.Limit
	if f.Limit <= 0 || f.Used <= 0 || f.Requested <= 0 || f.Requested > f.Limit || over <= 0 {
		return 0
	}
	window := cmp.Or(f.Period, time.Minute)
	if f.Dimension == limits.RequestsPerDay || f.Dimension == limits.TokensPerDay {
		window = day
	}
	return Scaled(float64(over)/float64(f.Limit)*float64(window.Milliseconds()), time.Millisecond)
}

const count = `(\d[\d,]*)(?:[^\d\w]|$)`

var (
	limitFigure     = regexp.MustCompile(`\blimit(?:[ :=]|is |of )*` + count)
	usedFigure      = regexp.MustCompile(`\b(?:used|current)[ :=]*` + count)
	requestedFigure = regexp.MustCompile(`\brequested[ :=]*` + count)
	concurrency     = regexp.MustCompile(`\bconcurrency[ :=]*` + count)
	perTime         = regexp.MustCompile(`(\d[\d,]*) (?:(?:(?:input |output )?tokens|requests|queries) per|concurrent|` +
		`per (?:\d+ )?(?:second|minute|hour|day))`)
	// The limits of libraries, which name the period by a number and a unit. Flask-Limiter and SlowAPI use the format of the Python package
	// limits, "100 per 10 second" (https://github.com/alisaifee/limits/blob/master/limits/limits.py), AspNetCoreRateLimit "100 per 10s"
	// (https://github.com/stefanprodan/AspNetCoreRateLimit/wiki/IpRateLimitMiddleware).
	perPeriod = regexp.MustCompile(`(\d[\d,]*) (?:requests |calls |tokens )?per (\d+) ?(second|minute|hour|[smh]\b)`)

	actualOfLimit = regexp.MustCompile(`\(actual/limit\): (\d+)/(\d+)`) // of xAI
	// LiteLLM's gateway lists how far each limit is used: https://github.com/BerriAI/litellm/issues/13898.
	counters = []struct {
		dimension   limits.Dimension
		used, limit *regexp.Regexp
	}{
		{limits.Requests, regexp.MustCompile(`current rpm[ :]*` + count), regexp.MustCompile(`rpm limit[ :]*` + count)},
		{limits.Tokens, regexp.MustCompile(`current tpm[ :]*` + count), regexp.MustCompile(`tpm limit[ :]*` + count)},
		{limits.Concurrency, regexp.MustCompile(`current max parallel requests[ :]*` + count),
			regexp.MustCompile(`, max parallel requests[ :]*` + count)},
	}
	// The dimension of a limit by its words. An abbreviation in brackets names it; words may also stand in what the sentence advises
	// ("the input or output tokens must be reduced").
	dimensions = []struct {
		dimension limits.Dimension
		words     []string
	}{
		{limits.RequestsPerDay, []string{"(rpd)"}},
		{limits.TokensPerDay, []string{"(tpd)"}},
		{limits.InputTokens, []string{"(itpm)"}},
		{limits.OutputTokens, []string{"(otpm)"}},
		{limits.Tokens, []string{"(tpm)", "limit type: tokens"}},
		{limits.Requests, []string{"(rpm)", "limit type: requests"}},
		{limits.Concurrency, []string{"concurren", "simultaneous", "parallel requests", "limit type: max_parallel"}},
		{limits.RequestsPerDay, []string{"requests per day", "requests/day", "request per day", "per 1 day"}},
		{limits.TokensPerDay, []string{"tokens per day", "tokens/day", "token per day", "tpd rate limit"}},
		{limits.InputTokens, []string{"input token", "prompt tokens per"}},
		{limits.OutputTokens, []string{"output token", "generated tokens per"}},
		{limits.Tokens, []string{"tokens per min", "token per min", "tokens/min", "token rate limit", "too many tokens",
			"request tokens has exceeded", "tpm rate limit"}},
		{limits.Requests, []string{"requests per min", "request per min", "requests/min", "queries per min", "call rate limit",
			"requests per second", "number of requests has exceeded", "too many requests per", "rpm rate limit", "per 1 minute"}},
	}
)

// figures reads the numbers and the dimension of a rejection's sentence.
func figures(s string) (f Figures) {
	low := strings.ToLower(s)
	listed := strings.ReplaceAll(low, "_", " ")
	counted := false
	for _, c := range counters {
		if !strings.Contains(listed, "current ") {
			break
		}
		if used := figure(c.used, listed); used > 0 || c.used.MatchString(listed) {
			counted = true
			if limit := figure(c.limit, listed); limit > 0 && used >= limit {
				return Figures{Dimension: c.dimension, Limit: limit, Used: used}
			}
		}
	}
	if counted {
		return f
	}
	for _, d := range dimensions {
		if slices.ContainsFunc(d.words, func(w string) bool { return strings.Contains(low, w) }) {
			f.Dimension = d.dimension
			break
		}
	}
	f.Limit, f.Used, f.Requested = figure(limitFigure, low), figure(usedFigure, low), figure(requestedFigure, low)
	if f.Limit == 0 && f.Dimension == limits.Concurrency {
		f.Limit = figure(concurrency, low)
	}
	if f.Limit == 0 {
		f.Limit = figure(perTime, low)
	}
	f.law(low)
	if m := actualOfLimit.FindStringSubmatch(low); m != nil {
		f.Used, f.Limit = int64(float(m[1])), int64(float(m[2]))
	}
	return f
}

// law reads a limit with its period. Without another word it is one of requests.
func (f *Figures) law(low string) {
	m := perPeriod.FindStringSubmatch(low)
	if m == nil || f.Dimension != limits.AnyDimension && f.Dimension.Window() != time.Minute {
		return
	}
	limit := figure(perPeriod, low)
	period, err := time.ParseDuration(m[2] + m[3][:1])
	if err != nil || limit == 0 || period < limits.MinPeriod || period > limits.MaxPeriod {
		return
	}
	if f.Limit, f.Period = limit, period; f.Dimension == limits.AnyDimension {
		f.Dimension = limits.Requests
		if strings.Contains(m[0], "tokens") {
			f.Dimension = limits.Tokens
		}
	}
}

// figure returns the first number above zero that a pattern finds.
func figure(re *regexp.Regexp, s string) int64 {
	for _, m := range re.FindAllStringSubmatch(s, 8) {
		if n := float(strings.TrimRight(m[1], ",")); n > 0 && n <= 1<<53 {
			return int64(n)
		}
	}
	return 0
}
