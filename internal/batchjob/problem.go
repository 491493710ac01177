package batchjob

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// ProblemError is the error of an Upload or a Create that the provider rejected because of the part, or because of enqueued requests. It
// unwraps to the *sluice.CallError of the rejection.
type ProblemError struct {
	Problem
	Rejection error
}

// Error describes the rejection.
func (e *ProblemError) Error() string { return e.Rejection.Error() }

// Unwrap returns the rejection.
func (e *ProblemError) Unwrap() error { return e.Rejection }

// roomCodes and sizeCodes are parts of codes. OpenAI does not list its codes: token_limit_exceeded is in
// https://github.com/openai/openai-python/issues/2084, too_many_tasks in the list of Azure, which has the same API
// (https://learn.microsoft.com/azure/ai-services/openai/how-to/batch). The others are likely codes for a size.
var (
	roomCodes = [...]string{"token_limit_exceeded"}
	sizeCodes = [...]string{"too_large", "too_many_tasks", "file_size", "size_limit"}
)

// requestName is the name of a request in a rejection by Anthropic: requests.3.params.max_tokens: Field required.
var requestName = regexp.MustCompile(`^requests\.([0-9]{1,7})\.`)

// refused makes a *ProblemError of the error of a Create or Upload that is about the part.
func (c *client) refused(a provider.Answer, err error) error {
	call, ok := errors.AsType[*sluice.CallError](err)
	if !ok || a.Status/100 != 4 {
		return err
	}
	body, _ := parseObject(a.Body)
	p := problem(body.object("error"))
	p.Message = cmp.Or(p.Message, call.Error())
	switch {
	case p.Kind == NoRoom || p.Kind == TooLarge:
	case a.Status == http.StatusRequestEntityTooLarge:
		p.Kind = TooLarge
	case a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed: // the address is wrong
		return err
	case call.Kind == sluice.BadRequest || call.Kind == sluice.ContextLength || call.Kind == sluice.ContentFilter:
		p.Kind = Invalid
		if m := requestName.FindStringSubmatch(p.Message); m != nil {
			position, _ := strconv.Atoi(m[1])
			p.Lines = map[int]string{position: p.Message}
		}
	default:
		return err
	}
	c.clean(&p)
	return &ProblemError{p, err}
}

// clean shortens the texts of a problem and removes keys.
func (c *client) clean(p *Problem) {
	short := func(s string, limit int) string {
		if len(s) > limit {
			s = strings.ToValidUTF8(s[:limit], "") + "…"
		}
		return provider.Redact(s, c.to.Key)
	}
	if p == nil {
		return
	}
	p.Code, p.Message = short(p.Code, 100), short(p.Message, 1000)
	for position, message := range p.Lines {
		p.Lines[position] = short(message, 1000)
	}
}

// problem returns the problem that an error describes. An unknown error is Invalid.
func problem(fault object) Problem {
	message, code := fault.text("message"), cmp.Or(fault.text("code"), fault.text("type"))
	p := Problem{Kind: Invalid, Code: code, Message: cmp.Or(message, code)}
	has := func(word string) bool { return strings.Contains(strings.ToLower(code), word) }
	tokens, enqueued := enqueuedTokens(message)
	switch {
	case enqueued || slices.ContainsFunc(roomCodes[:], has):
		p.Kind, p.Tokens = NoRoom, tokens
	case slices.ContainsFunc(sizeCodes[:], has):
		p.Kind = TooLarge
	case code == "server_error" || code == "internal_error" || strings.HasPrefix(code, "billing"):
		p.Kind = Broken // the same requests may succeed, for example after a payment
	}
	return p
}

// enqueuedLimit finds a limit, of tokens with its number: "Enqueued token limit reached for gpt-4o-mini in organization org-x. Limit:
// 2,000,000 enqueued tokens." (https://github.com/openai/openai-python/issues/2084), "The number of enqueued tokens has surpassed the
// configured limit of 30K for the deployment" (https://learn.microsoft.com/answers/questions/2285577), and "Enqueued request limit reached
// for text-embedding-3-small" (https://community.openai.com/t/batch-api-request-limit-violates-terms-of-service/1002388).
var enqueuedLimit = regexp.MustCompile(`(?i)\benqueued (?:` +
	`tokens?\b.{0,200}?\blimit(?:: | of )([0-9][0-9,]{0,20}(?:\.[0-9]{1,3})?)([KMB])?\b|` +
	`(?:token|request) limit\b)`)

// enqueuedTokens returns the limit in a message; 0 is unknown. It returns false if the message is not about a limit of enqueued requests.
func enqueuedTokens(message string) (tokens int, ok bool) {
	m := enqueuedLimit.FindStringSubmatch(message)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
	n *= map[string]float64{"": 1, "K": 1e3, "M": 1e6, "B": 1e9}[strings.ToUpper(m[2])]
	if err != nil || n < 1 || n > math.MaxInt32*1000.0 {
		return 0, true
	}
	return int(n), true
}
