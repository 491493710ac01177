package batchjob

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// ProblemError is the error of an Upload or a Create that the provider refused for what the part is, or for what is enqueued
// already. It unwraps to the *sluice.CallError of the refusal.
type ProblemError struct {
	Problem
	err error
}

// Refusal makes a ProblemError of a refusal.
func Refusal(p Problem, err error) *ProblemError { return &ProblemError{p, err} }

// Error says what is wrong.
func (e *ProblemError) Error() string { return e.err.Error() }

// Unwrap returns the refusal.
func (e *ProblemError) Unwrap() error { return e.err }

// fault is an error as OpenAI and others write it. Its members may have any type.
type fault struct {
	Code, Type, Message any
	Line                any
}

// roomCodes and sizeCodes stand in the codes of what could be taken at another time, or in smaller parts. OpenAI does not list
// its codes: token_limit_exceeded is in https://github.com/openai/openai-python/issues/2084, too_many_tasks in the list of Azure,
// which has the same API (https://learn.microsoft.com/azure/ai-services/openai/how-to/batch), and the others are what a code of a
// size would be called.
var (
	roomCodes = [...]string{"token_limit_exceeded"}
	sizeCodes = [...]string{"too_large", "too_many_tasks", "file_size", "size_limit"}
)

// refused makes a *ProblemError of the error of a Create or Upload, if it is one of the part. lines finds what the words say of
// single requests; nil finds nothing.
func (c *caller) refused(a provider.Answer, err error, lines func(message string) map[int]string) error {
	call, ok := errors.AsType[*sluice.CallError](err)
	if !ok || a.Status/100 != 4 {
		return err
	}
	var body struct{ Error json.RawMessage }
	_ = json.Unmarshal(a.Body, &body) // what is no JSON says nothing
	var f fault
	_ = json.Unmarshal(body.Error, &f)
	p := c.problem(f)
	if p.Message == "" {
		p.Message = call.Error()
	}
	switch {
	case p.Kind == NoRoom || p.Kind == TooLarge:
	case a.Status == http.StatusRequestEntityTooLarge:
		p.Kind = TooLarge
	case call.Kind == sluice.BadRequest || call.Kind == sluice.ContextLength || call.Kind == sluice.ContentFilter:
		p.Kind = Invalid
		if a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed {
			return err // the address is wrong, and no part would be taken
		}
	default:
		return err
	}
	if lines != nil && p.Kind == Invalid {
		p.Lines = lines(p.Message)
	}
	return Refusal(p, err)
}

// problem reads an error that a batch failed with. What it does not know is of the kind Invalid.
func (c *caller) problem(f fault) Problem {
	code, _ := f.Code.(string)
	if kind, _ := f.Type.(string); code == "" {
		code = kind
	}
	message, _ := f.Message.(string)
	p := Problem{Kind: Invalid, Code: c.words(code, 100), Message: cmp.Or(c.words(message, 1000), c.words(code, 100))}
	has := func(words []string) bool {
		for _, word := range words {
			if strings.Contains(strings.ToLower(code), word) {
				return true
			}
		}
		return false
	}
	tokens, enqueued := enqueuedTokens(message)
	switch {
	case has(roomCodes[:]) || enqueued:
		p.Kind, p.Tokens = NoRoom, tokens
	case has(sizeCodes[:]):
		p.Kind = TooLarge
	case code == "server_error" || code == "internal_error" || strings.HasPrefix(code, "billing"):
		p.Kind = Broken // money can be paid in, and the requests are as good as they were
	}
	return p
}

// words is a text of the provider's that is kept.
func (c *caller) words(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return provider.Redact(s, c.to.Key)
}

// enqueued finds how many tokens may be enqueued: "Enqueued token limit reached for gpt-4o-mini in organization org-x. Limit:
// 2,000,000 enqueued tokens." (https://github.com/openai/openai-python/issues/2084), and "The number of enqueued tokens has
// surpassed the configured limit of 30K for the deployment" (https://learn.microsoft.com/answers/questions/2285577).
var enqueued = regexp.MustCompile(`(?i)\benqueued tokens?\b.{0,200}?\blimit(?:: | of )([0-9][0-9,]{0,20})(\.[0-9]{1,3})?([KMB])?\b`)

// enqueuedAny finds that too much is enqueued, though not how many tokens may be: "Enqueued request limit reached for
// text-embedding-3-small in organization org-x. Limit: 1,000,000 enqueued requests."
// (https://community.openai.com/t/batch-api-request-limit-violates-terms-of-service/1002388).
var enqueuedAny = regexp.MustCompile(`(?i)\benqueued (token|request) limit\b`)

// enqueuedTokens reads the limit out of a message about it. 0 is a message that does not say it; !ok is none about it.
func enqueuedTokens(message string) (tokens int, ok bool) {
	m := enqueued.FindStringSubmatch(message)
	if m == nil {
		return 0, enqueuedAny.MatchString(message)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", "")+m[2], 64)
	for _, unit := range []string{"K", "M", "B"} {
		if m[3] != "" {
			n *= 1000
		}
		if strings.EqualFold(m[3], unit) {
			break
		}
	}
	if err != nil || n < 1 || n > math.MaxInt32*1000.0 {
		return 0, true
	}
	return int(n), true
}

// place turns the number of a line, from 1, into the place of a request, from 0.
func place(line any) (int, bool) {
	const most = 1e7 // more than any batch has
	n, ok := line.(float64)
	if !ok || n < 1 || n > most || n != math.Trunc(n) {
		return 0, false
	}
	return int(n) - 1, true
}

// senselessLine is the error of a line of results that is not as documented.
func senselessLine(line []byte) error {
	return fmt.Errorf("a result line has no custom_id or no result: %.80q", line)
}
