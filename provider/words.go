package provider

import (
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
)

// straight makes all quotes alike.
var straight = strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`, "`", "'")

// normalise returns a message as patterns expect it: in lower case, with straight quotes and single spaces.
func normalise(s string) string {
	return strings.Join(strings.Fields(straight.Replace(strings.ToLower(s))), " ")
}

// matches reports whether s is as the pattern says. A pattern is matched from its first character to its last; *
// stands for any text.
func matches(pattern, s string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for star {
		var part string
		part, rest, star = strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return s == ""
}

// waitCues are the words before a wait. Those of other languages are of messages that are known to be translated.
var waitCues = [...]string{"try again in", "retry in", "retry after", "retry-after", "retrydelay",
	"try again after", "again after", "wait for", "please wait", "replenished in", "resets in", "reset in", "resets after",
	"reset after", "resetting in", "retry again in", "available in", "back in", "renews in", "retry_after", "retry delay of", "again in",
	"de nuevo en", "intentarlo en", "espera", "se restablece en", "restablecerá en", "réessayez dans", "réessayer dans", "dans",
	"patienter", "versuche es in", "versuchen sie es in", "zurückgesetzt in", "warte", "warten sie", "novamente em",
	"redefine em", "aguarde", "riprova tra", "wait"}

// chosenCues are the words before a wait that a client chose.
var chosenCues = [...]string{"waiting for", "waiting", "retrying in", "retrying after", "sleeping for", "sleeping", "backing off for", "backing off"}

// laterWaits are the words after a wait.
var laterWaits = [...]string{"后重试", "后再试", "后重置", "后恢复", "後に", "後再", "후에", "후 다시", "erneut", "zurückgesetzt"}

// waitIn returns how long a sentence in normal form asks to wait, in the forms that providers use. What a client chose to
// wait stands behind what it was told.
func waitIn(low string) time.Duration {
	if d := toldWait(low); d > 0 {
		return d
	}
	if d := waitBehind(low, chosenCues[:]); d > 0 {
		return d
	}
	return retriedIn(low)
}

// toldWait is the part of waitIn that a provider said.
func toldWait(low string) time.Duration {
	if d := waitBehind(low, waitCues[:]); d > 0 {
		return d
	}
	for _, cue := range laterWaits {
		if before, _, ok := strings.Cut(low, cue); ok {
			if d := spanBefore(before); d > 0 {
				return d
			}
		}
	}
	return 0
}

// waitBehind returns the wait that stands behind one of the cues.
func waitBehind(low string, cues []string) time.Duration {
	for _, cue := range cues {
		rest := low
		for {
			_, after, ok := strings.Cut(rest, cue)
			if !ok {
				break
			}
			before := len(rest) - len(after) - len(cue)
			if before > 0 && (isLetter(rest[before-1]) || rest[before-1] == '_') && isLetter(cue[0]) {
				rest = after
				continue // within another word
			}
			rest = after
			after = strings.TrimLeft(after, " :=(\"'~")
			for _, filler := range [...]string{"for ", "about ", "at least ", "approximately ", "unos ", "environ ", "up to ", "another "} {
				after = strings.TrimPrefix(after, filler)
			}
			if d, _ := span(after); d > 0 {
				return d
			}
		}
	}
	return 0
}

// protoDelay reads the wait that Google's clients print of a protocol buffer: "retry_delay { seconds: 37 nanos: 5 }".
func protoDelay(s string) time.Duration {
	_, after, ok := strings.Cut(s, "retry_delay {")
	if !ok {
		return 0
	}
	inner, _, _ := strings.Cut(clip(after, 80), "}")
	fields := strings.Fields(inner)
	var d time.Duration
	for i := 0; i+1 < len(fields); i += 2 {
		switch fields[i] {
		case "seconds:":
			d += seconds(fields[i+1], time.Second)
		case "nanos:":
			d += seconds(fields[i+1], time.Nanosecond)
		}
	}
	return positive(d)
}

// retriedIn reads what a client says that it waits, with more in between: "retrying 1/5 in 195ms", "Retrying f in 2.0
// seconds as it raised ...".
func retriedIn(low string) time.Duration {
	_, after, ok := strings.Cut(low, "retrying ")
	if !ok {
		return 0
	}
	after = clip(after, 160)
	for range 3 {
		if _, after, ok = strings.Cut(after, " in "); !ok {
			return 0
		}
		if d, rest := span(after); d > 0 && len(rest) < len(after) {
			return d
		}
	}
	return 0
}

// spanBefore reads the duration that a text ends with: "请在 3 小时 43 分钟".
func spanBefore(s string) time.Duration {
	const reach = 48
	for i := max(0, len(s)-reach); i < len(s); i++ {
		if !isDigit(s[i]) || i > 0 && isDigit(s[i-1]) {
			continue
		}
		if d, rest := span(s[i:]); d > 0 && strings.TrimSpace(rest) == "" {
			return d
		}
	}
	return 0
}

// figures are the numbers of a refusal.
type figures struct {
	dimension              sluice.Dimension
	limit, used, requested int64
	window                 time.Duration
}

// wait is how long it takes until the call fits: buckets refill evenly, which the waits in the bodies of OpenAI and
// Groq confirm to the millisecond (https://github.com/continuedev/continue/issues/11472: Limit 30000, Used 18928,
// Requested 11159 gives 174 ms).
func (f figures) wait() time.Duration {
	over := f.used + f.requested - f.limit
	if f.limit <= 0 || f.used <= 0 || f.requested <= 0 || f.requested > f.limit || over <= 0 {
		return 0
	}
	ms := float64(over) / float64(f.limit) * float64(f.window.Milliseconds())
	return scaled(ms, time.Millisecond)
}

// parseFigures reads the numbers and the dimension of a refusal's sentence in normal form.
func parseFigures(low string) figures {
	if f, ok := countersIn(low); ok {
		return f
	}
	f := figures{dimension: dimensionIn(low), window: time.Minute}
	switch f.dimension {
	case sluice.RequestsPerDay, sluice.TokensPerDay:
		f.window = 24 * time.Hour
	}
	f.limit = numberAfter(low, "limit")
	f.used = numberAfter(low, "used")
	if f.used == 0 {
		f.used = numberAfter(low, "current") // OpenAI until 2023: "Limit: 10000 / min. Current: 10020 / min."
	}
	f.requested = numberAfter(low, "requested")
	if f.limit == 0 && f.dimension == sluice.Concurrency {
		f.limit = numberAfter(low, "concurrency")
	}
	if f.limit == 0 {
		f.limit = numberBefore(low, "input tokens per", "output tokens per", "tokens per", "requests per", "queries per",
			"concurrent")
	}
	if _, after, ok := strings.Cut(low, "(actual/limit): "); ok { // xAI
		used, rest, _ := strings.Cut(after, "/")
		f.used, f.limit = number(used), number(rest)
	}
	return f
}

// countersIn reads a refusal that lists how far each limit is used, as LiteLLM's gateway does, and returns the one that is
// reached: "current rpm: 1, rpm limit: 15, current tpm: 12260, tpm limit: 5000" (https://github.com/BerriAI/litellm/issues/13898).
func countersIn(low string) (f figures, ok bool) {
	low = strings.ReplaceAll(low, "_", " ")
	for _, row := range [...]struct {
		dimension   sluice.Dimension
		used, limit string
	}{
		{sluice.Requests, "current rpm", "rpm limit"},
		{sluice.Tokens, "current tpm", "tpm limit"},
		{sluice.Concurrency, "current max parallel requests", ", max parallel requests"},
	} {
		if !strings.Contains(low, row.used) {
			continue
		}
		ok = true
		if used, limit := numberAfter(low, row.used), numberAfter(low, row.limit); limit > 0 && used >= limit {
			return figures{dimension: row.dimension, limit: limit, used: used, window: time.Minute}, true
		}
	}
	return figures{dimension: sluice.AnyDimension, window: time.Minute}, ok
}

// dimensionIn returns which limit a sentence in normal form speaks of. An abbreviation in brackets names it; words may
// also stand in what the sentence advises ("the input or output tokens must be reduced").
func dimensionIn(low string) sluice.Dimension {
	for _, row := range [...]struct {
		dimension sluice.Dimension
		words     []string
	}{
		{sluice.RequestsPerDay, []string{"(rpd)"}},
		{sluice.TokensPerDay, []string{"(tpd)"}},
		{sluice.InputTokens, []string{"(itpm)"}},
		{sluice.OutputTokens, []string{"(otpm)"}},
		{sluice.Tokens, []string{"(tpm)", "limit type: tokens"}},
		{sluice.Requests, []string{"(rpm)", "limit type: requests"}},
		{sluice.Concurrency, []string{"concurren", "simultaneous", "parallel requests", "limit type: max_parallel"}},
		{sluice.RequestsPerDay, []string{"requests per day", "requests/day", "request per day"}},
		{sluice.TokensPerDay, []string{"tokens per day", "tokens/day", "token per day", "tpd rate limit"}},
		{sluice.InputTokens, []string{"input tokens per", "input token", "prompt tokens per"}},
		{sluice.OutputTokens, []string{"output tokens per", "output token", "generated tokens per"}},
		{sluice.Tokens, []string{"tokens per min", "token per min", "tokens/min", "token rate limit", "too many tokens",
			"request tokens has exceeded", "tpm rate limit"}},
		{sluice.Requests, []string{"requests per min", "request per min", "requests/min", "queries per min",
			"call rate limit", "requests per second", "number of requests has exceeded", "too many requests per", "rpm rate limit"}},
	} {
		for _, w := range row.words {
			if strings.Contains(low, w) {
				return row.dimension
			}
		}
	}
	return sluice.AnyDimension
}

// numberAfter returns the number that follows a word: "limit 30000", "limit: 10,000 / min".
func numberAfter(low, word string) int64 {
	rest := low
	for {
		before, after, ok := strings.Cut(rest, word)
		if !ok {
			return 0
		}
		rest = after
		if before != "" && isLetter(before[len(before)-1]) {
			continue // "unlimited"
		}
		after = strings.TrimLeft(after, " :=")
		after = strings.TrimPrefix(strings.TrimPrefix(after, "is "), "of ")
		if n := number(after); n > 0 {
			return n
		}
	}
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// numberBefore returns the number that stands before the first of the phrases that has one: "30,000 input tokens per".
func numberBefore(low string, phrases ...string) int64 {
	for _, phrase := range phrases {
		before, _, ok := strings.Cut(low, phrase)
		if !ok {
			continue
		}
		before = strings.TrimRight(before, " ")
		i := len(before)
		for i > 0 && (before[i-1] >= '0' && before[i-1] <= '9' || before[i-1] == ',') {
			i--
		}
		if n := number(strings.TrimLeft(before[i:], ",")); n > 0 {
			return n
		}
	}
	return 0
}

// number reads a whole number, with or without commas between thousands, from the beginning of s. A wait's unit or a
// decimal after it makes it none.
func number(s string) int64 {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == ',' && i > 0 && isThousand(s[i+1:])) {
		i++
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s[:i], ",", ""), 10, 64)
	if err != nil || n > 1<<53 || i < len(s) && isLetter(s[i]) {
		return 0
	}
	return n
}

// isThousand reports whether s begins with three digits and no fourth.
func isThousand(s string) bool {
	for i := range 3 {
		if i >= len(s) || s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return len(s) == 3 || s[3] < '0' || s[3] > '9'
}
