// Package budget stops a run at its limits: the cost and the tokens of its requests, failed items, and a deadline. The usage of finished
// requests and the corrected estimates of open requests stay within a cap. A cap is exceeded at most by the usage of open requests above
// their estimates.
package budget

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Budget limits one run. When the run reaches a limit, it stops with an *Error, and its results are kept. The next run on the same output
// has the full Budget again. The zero value limits nothing.
type Budget struct {
	// Cost and Tokens bound the cost of requests, in US dollars, and their tokens, input and output. A request is sent only if its
	// estimate fits beside the amount that was used and the estimates of the open requests. The estimate is its input, and the maximum
	// output that it declares, both corrected by the responses of its model. If it declares none, the estimate is the 95th percentile
	// of its model's recent outputs; before the first response it is the maximum output of its price, or 4,096 tokens. So a cap is
	// exceeded at most by the usage of open requests above their estimates. With a Batch API, a request is open from its addition to a
	// part, and has the price of the Batch API.
	Cost   float64
	Tokens int

	Deadline time.Time // nothing is sent after it

	// Failures stops the run at that many failed items, FailedShare once more than this part of the finished ones failed,
	// from 20 on.
	Failures    int
	FailedShare float64

	// Attempts is how many attempts the Schedulers make, of a call that waits for room before another, too; and how often a
	// line is sent through a Batch API, but for times at which it was not run. If a run has requests of both ways, their attempts count
	// together. Default 6.
	Attempts int
}

// Check returns an error for an invalid field, and sets defaults. priced reports whether prices are known.
func (b *Budget) Check(priced bool) error {
	switch {
	case !(b.Cost >= 0) || math.IsInf(b.Cost*Dollar, 0):
		return fmt.Errorf("the cost %v is not an amount of money", b.Cost)
	case b.Cost > 0 && !priced:
		return errors.New("cost needs Config.Price")
	case b.Tokens < 0:
		return errors.New("tokens are negative")
	case b.Failures < 0:
		return errors.New("failures are negative")
	case !(b.FailedShare >= 0 && b.FailedShare < 1):
		return fmt.Errorf("the failed share %v is invalid: want 0 or more, and less than 1", b.FailedShare)
	case b.Attempts < 0:
		return errors.New("attempts are negative")
	}
	if b.Attempts == 0 {
		b.Attempts = 6
	}
	return nil
}

// Limited is the name of a limit.
type Limited string

// Limits.
const (
	Cost     Limited = "max_cost"         // US dollars
	Total    Limited = "max_total_tokens" // input and output
	Time     Limited = "deadline"         // seconds that the run had
	Failures Limited = "max_failures"     // failed items, or their share of the finished ones
)

// Used is the amount that a run used of a limit.
type Used struct {
	What  Limited `json:"cap"`   // `max_cost`, `max_total_tokens`, `deadline` or `max_failures`.
	Unit  string  `json:"unit"`  // `usd`, `tokens`, `seconds`, `items` or `share`.
	Limit float64 `json:"limit"` // Value of the limit.
	Used  float64 `json:"used"`  // Used amount.
}

// String describes the amount.
func (u Used) String() string {
	percent := func(share float64) string { return strconv.FormatFloat(share*100, 'g', 3, 64) + " %" }
	switch u.Unit {
	case "usd":
		return fmt.Sprintf("spent %s of %s", prose.Dollars(u.Used), prose.Dollars(u.Limit))
	case "tokens":
		return fmt.Sprintf("used %s of %s tokens", prose.Group(u.Used), prose.Group(u.Limit))
	case "items":
		return fmt.Sprintf("reached the maximum of %s", prose.Count(int(u.Limit), "failed item")) // open requests can fail after that
	case "share":
		return fmt.Sprintf("%s of the finished items failed, and the maximum is %s", percent(u.Used), percent(u.Limit))
	}
	return "the deadline has passed"
}

// Error is the error of a run that reached a limit.
type Error struct {
	Used
	Next float64 // cost or tokens that the next item may use
	ID   string  // the item
}

// Alone reports whether the next item exceeds the whole budget by itself. A run with the same budget cannot send it.
func (e *Error) Alone() bool { return e.Next > e.Limit }

// Error describes the used amount and the next item.
func (e *Error) Error() string {
	next := prose.Group(e.Next) + " tokens"
	if e.Unit == "usd" {
		next = prose.Dollars(e.Next)
	}
	switch {
	case e.Next == 0:
		return e.Used.String()
	case e.Alone():
		return fmt.Sprintf("%s, and item %q alone may use %s", e.Used, e.ID, next)
	}
	return fmt.Sprintf("%s, and the next item may use %s", e.Used, next)
}
