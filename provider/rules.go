package provider

import (
	"time"

	"github.com/sluice-llm/sluice"
)

// rule is one line of the table by which errors are classified. All of its conditions must hold; one that is not given
// holds always. The first rule that holds decides.
type rule struct {
	name     string
	statuses []int    // the HTTP status is one of these; 0 is an error that has none, such as one inside a stream
	marks    []string // a type, code or reason is one of these names: letters and digits in lower case, * any text
	words    []string // a message is as one of these patterns, in lower case, * any text
	header   string   // a header is there
	kind     sluice.Kind
	tooLarge bool
	until    func(now time.Time) time.Time // when it is over, if the rule alone knows
	hint     string                        // put before the provider's words
}

// Statuses that rules share.
var (
	throttles = []int{0, 200, 400, 402, 403, 429, 500, 502, 503, 529} // where providers have put a throttle
	refusals  = []int{0, 200, 400, 402, 403, 404, 413, 422, 429, 500} // where they have put a refusal of the request
	redirects = []int{300, 301, 302, 303, 305, 307, 308}
)

// rules is the table. Its order goes from what is certain and final to what a status alone suggests:
//
//  1. what a code states and no words could change: money, windows, size, content
//  2. what only words state
//  3. keys, overload, rate limits
//  4. statuses
//
// Sources are the providers' error references and the texts in testdata.
var rules = [...]rule{
	// https://www.developersdigest.tech/errors/api/anthropic-api: the tier's spend cap, a 429 without retry-after, in
	// force until the first of the month.
	{name: "spend cap of the tier", marks: []string{"enforcedspendlimitreached"}, kind: sluice.QuotaExhausted,
		until: nextMonth},
	// https://openrouter.ai/docs/api-reference/limits: the only 402s to be tried again.
	{name: "budget held by calls in flight", marks: []string{"inflightbudgetexhausted", "openrouterinflightbudget"},
		kind: sluice.RateLimit},
	// https://help.openai.com/en/articles/5955604 and https://docs.anthropic.com/en/api/errors.
	{name: "quota exhausted", marks: []string{"insufficientquota", "creditbalanceexhausted", "*spendlimitexceeded",
		"organizationusagelimitexceeded", "billinghardlimitreached", "billinglimit*", "billingnotactive",
		"billingerror", "insufficientbalance", "insufficientcredits", "insufficientfunds", "weightexceedsbudget",
		"openroutercredits", "openrouterkeylimit"}, kind: sluice.QuotaExhausted},

	{name: "usage window of a plan", marks: []string{"usagelimitreached", "limitreached", "usagelimitexceeded"},
		kind: sluice.UsageWindow},
	{name: "quota of a day", marks: []string{"*perday*"}, kind: sluice.UsageWindow},
	{name: "usage limit until a stated day", words: []string{"*reached your specified*usage limit*",
		"*you will regain access on*"}, kind: sluice.UsageWindow},
	{name: "usage window in words", words: []string{"*free-models-per-day*", "too many tokens per day*",
		"*usage limit reached*", "*usage limit has been reached*", "*hit your usage limit*",
		"*quota will be replenished in*", "*hit your*limit*resets*"}, kind: sluice.UsageWindow},

	{name: "request larger than the whole limit", statuses: refusals,
		words: []string{"request too large for *limit*requested*"}, kind: sluice.ContextLength, tooLarge: true},
	{name: "content filtered", marks: []string{"contentfilter*", "contentpolicyviolation",
		"responsibleaipolicyviolation", "moderationblocked", "flaggedinput", "datainspectionfailed",
		"contentblocked"}, kind: sluice.ContentFilter},
	{name: "context length", marks: []string{"contextlengthexceeded", "contextwindowexceeded",
		"modelcontextwindowexceeded", "exceedcontextsizeerror"}, kind: sluice.ContextLength},
	{name: "context length in words", statuses: []int{0, 200, 400, 413, 422, 500},
		words: []string{"*prompt is too long*", "*maximum context length*",
			"*input length and*exceed context limit*", "*input is too long*", "*input token count*exceeds*",
			"*exceeds the maximum number of tokens allowed*", "*exceeds the context window*", "*exceed context limit*",
			"*exceeds*context size*", "*context length exceeded*", "*context window*exceeded*"},
		kind: sluice.ContextLength},
	{name: "content filtered in words", statuses: []int{0, 200, 400, 403, 422},
		words: []string{"*content management policy*", "*content filtering policy*", "*content filter*",
			"*flagged as potentially violating*", "*violat*usage polic*", "*violat*content polic*",
			"*flagged*moderation*", "*requires moderation*", "*rejected*safety system*"}, kind: sluice.ContentFilter},

	{name: "quota of a minute", marks: []string{"*perminute*"}, kind: sluice.RateLimit},
	{name: "overloaded, in words of a limit", statuses: []int{0, 429}, words: []string{"*no capacity available*",
		"*at capacity*", "*capacity exceeded*", "*experiencing high demand*", "*overloaded*"},
		kind: sluice.Overloaded},
	// Google says "You exceeded your current quota" of limits per minute too, but marks them.
	{name: "resource exhausted", statuses: []int{0, 200, 429}, marks: []string{"resourceexhausted"},
		kind: sluice.RateLimit},
	{name: "quota exhausted in words", statuses: []int{0, 200, 400, 401, 402, 403, 429},
		words: []string{"*credit balance*too low*", "*exceeded your current quota*", "*insufficient balance*",
			"*insufficient credit*", "*insufficient funds*", "*used all available credits*", "*monthly spending limit*",
			"*billing hard limit*", "*account is not active*billing*", "*out of credits*", "*credits*depleted*",
			"*requires more credits*", "*quota exceeded*subscription*"}, kind: sluice.QuotaExhausted},

	{name: "model not found", marks: []string{"modelnotfound", "deploymentnotfound", "notfounderror"},
		statuses: []int{0, 200, 400, 403, 404}, kind: sluice.BadRequest},
	{name: "key refused", statuses: []int{0, 200, 400, 401, 403, 404, 500}, marks: []string{"invalidapikey",
		"apikeyinvalid", "missingapikey", "invalidauthentication", "authenticationerror", "permissionerror",
		"permissiondenied", "unauthenticated", "unauthorized", "unsupportedcountryregionterritory",
		"accountdeactivated", "accessdeniedexception", "unrecognizedclientexception", "expiredtokenexception",
		"accessdenied"}, kind: sluice.Auth},
	{name: "key refused in words", statuses: []int{0, 400, 401, 403}, words: []string{"*incorrect api key*",
		"*invalid x-api-key*", "*invalid api key*", "*api key not valid*", "*invalid subscription key*",
		"*api key*expired*", "*organization has been disabled*"}, kind: sluice.Auth},

	// Written by Envoy, which many providers stand behind: the model never saw the request.
	{name: "proxy lost its connection", statuses: []int{0, 502, 503, 504},
		words: []string{"*upstream connect error*", "*connection termination*", "*connection reset*"},
		kind:  sluice.Network},
	// OpenAI; 429, formerly 503
	{name: "ramp too fast", marks: []string{"slowdown"}, kind: sluice.RateLimit},
	{name: "overloaded", statuses: throttles, marks: []string{"overloadederror", "overloaded", "serverisoverloaded",
		"engineoverloaded*", "modeloverloaded", "unavailable", "serviceunavailable*", "modelnotreadyexception"},
		kind: sluice.Overloaded},
	{name: "overloaded in words", statuses: []int{0, 200, 429, 500, 502, 503, 529}, words: []string{"*overloaded*",
		"*at capacity*", "*no capacity available*", "*capacity exceeded*", "*experiencing high demand*"},
		kind: sluice.Overloaded},
	// https://docs.anthropic.com: subscriptions state their windows only in these headers.
	{name: "usage window in headers", statuses: []int{429}, header: "rejected", kind: sluice.UsageWindow},
	{name: "rate limit", statuses: throttles, marks: []string{"ratelimit*", "toomanyrequests*", "throttling*",
		"requestthrottled*", "tokens", "requests", "creditlimit", "queuefull"}, kind: sluice.RateLimit},
	{name: "rate limit by status", statuses: []int{429}, kind: sluice.RateLimit},
	{name: "rate limit in words", statuses: []int{0, 400, 403, 503}, words: []string{"*rate limit reached*",
		"*rate limit is exceeded*", "*rate limit exceeded*", "*exceeded*rate limit*", "*would exceed*rate limit*",
		"*rate limited*", "*rate-limited*", "*limiting requests*", "too many requests*", "too many tokens*",
		"*too many concurrent*"}, kind: sluice.RateLimit},

	// Anthropic's 504
	{name: "provider timed out", statuses: []int{0, 200, 500, 504}, marks: []string{"timeouterror"},
		kind: sluice.ServerError},
	{name: "timed out", marks: []string{"deadlineexceeded", "requesttimeout", "timeout"}, kind: sluice.Timeout},
	{name: "timed out by status", statuses: []int{408, 504}, kind: sluice.Timeout},
	{name: "overloaded by status", statuses: []int{529}, kind: sluice.Overloaded},
	{name: "payment required, but a wait is stated", statuses: []int{402}, header: "Retry-After",
		kind: sluice.RateLimit},
	{name: "payment required", statuses: []int{402}, kind: sluice.QuotaExhausted},
	{name: "key refused by status", statuses: []int{401, 403}, kind: sluice.Auth},
	// the official SDKs try these again
	{name: "conflict or dependency", statuses: []int{409, 424, 425}, kind: sluice.ServerError},
	{name: "redirect", statuses: redirects, kind: sluice.BadRequest,
		hint: "the base URL redirects, which is not followed: give the address it leads to"},

	// An error inside a good answer or a stream has no status of its own: its type decides.
	{name: "server error", statuses: []int{0, 200}, marks: []string{"servererror", "apierror",
		"internalservererror", "internalerror", "internal"}, kind: sluice.ServerError},
	{name: "bad request", statuses: []int{0, 200}, marks: []string{"invalidrequest*", "badrequest*",
		"invalidargument", "validationexception", "requesttoolarge", "*notfound*", "unsupported*", "invalidvalue",
		"invalidtype"}, kind: sluice.BadRequest},
	{name: "bad request in words", statuses: []int{0}, words: []string{"*max_tokens is too large*", "invalid *"},
		kind: sluice.BadRequest},
}

// nextMonth returns the first of the next month in UTC.
func nextMonth(now time.Time) time.Time {
	y, m, _ := now.UTC().Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
}
