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
	field    string   // where the mark stands; "" anywhere
	words    []string // a message is as one of these patterns, in lower case, * any text
	header   string   // a header is there
	class    int      // its marks or words name no more than a class of errors, which this status is
	loose    bool     // only what stands in an error's place is meant, not the words of a command or a log
	dialect  Dialect  // it holds of this dialect alone; OpenAI, the zero one, says nothing
	kind     sluice.Kind
	waited   bool // with a wait stated it is a rate limit
	tooLarge bool
	until    func(now time.Time) time.Time // when it is over, if the rule alone knows and nothing else says
	hint     string                        // put before the provider's words
	also     string                        // what the same words may mean as well
	either   bool                          // that holds of every provider, not only of one that is not known
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
//  4. timeouts and the network, as SDKs and commands name them
//  5. statuses
//
// Sources are the providers' error references and the texts in testdata.
var rules = [...]rule{
	// https://www.developersdigest.tech/errors/api/anthropic-api: the tier's spend cap, a 429 without retry-after, in
	// force until the first of the month.
	{name: "spend cap of the tier", marks: []string{"enforcedspendlimitreached"}, kind: sluice.QuotaExhausted,
		until: nextMonth},
	// https://openrouter.ai/docs/api-reference/limits: the only 402s to be tried again.
	// https://platform.minimax.io/docs/api-reference/errorcode and https://docs.bigmodel.cn/cn/api/api-code: their
	// words are in several languages, their numbers are not.
	{name: "number of MiniMax", marks: []string{"1008"}, field: "base_resp", kind: sluice.QuotaExhausted},
	{name: "number of MiniMax", marks: []string{"1002", "1039"}, field: "base_resp", kind: sluice.RateLimit},
	{name: "number of MiniMax", marks: []string{"1004", "2049"}, field: "base_resp", kind: sluice.Auth},
	{name: "number of MiniMax", marks: []string{"1026", "1027"}, field: "base_resp", kind: sluice.ContentFilter},
	{name: "number of MiniMax", marks: []string{"2013", "1042"}, field: "base_resp", kind: sluice.BadRequest},
	{name: "number of MiniMax", marks: []string{"1001"}, field: "base_resp", kind: sluice.Timeout},
	{name: "number of Z.ai", marks: []string{"1113", "1309"}, field: "code", kind: sluice.QuotaExhausted},
	{name: "number of Z.ai", marks: []string{"1304", "1308", "1310"}, field: "code", kind: sluice.UsageWindow},
	{name: "number of Z.ai", marks: []string{"1302", "1303"}, field: "code", kind: sluice.RateLimit}, // 1305 means two things
	{name: "number of Z.ai", marks: []string{"1312"}, field: "code", kind: sluice.Overloaded},
	{name: "number of Z.ai", marks: []string{"1301"}, field: "code", kind: sluice.ContentFilter},
	{name: "number of Z.ai", marks: []string{"1261"}, field: "code", kind: sluice.ContextLength},
	{name: "budget held by calls in flight", marks: []string{"inflightbudgetexhausted", "openrouterinflightbudget"},
		kind: sluice.RateLimit},
	// https://help.openai.com/en/articles/5955604 and https://docs.anthropic.com/en/api/errors.
	{name: "quota exhausted", marks: []string{"insufficientquota", "creditbalanceexhausted", "*spendlimitexceeded",
		"organizationusagelimitexceeded", "billinghardlimitreached", "billinglimit*", "billingnotactive",
		"billingerror", "insufficientbalance", "insufficientcredits", "insufficientfunds", "weightexceedsbudget",
		"openroutercredits", "openrouterkeylimit", "servicequotaexceededexception", "creditexhausted",
		"paymentrequired*", "exceededcurrentquotaerror", "arrearage", "accountoverdue*", "insufficient*quota*",
		"allocationquota*"}, kind: sluice.QuotaExhausted},

	{name: "usage window of a plan", marks: []string{"usagelimitreached", "usagelimitexceeded", "usagelimitreachederror",
		"usagenotincluded"}, kind: sluice.UsageWindow},
	{name: "usage window of a plan", marks: []string{"limitreached"}, field: "limit_reached", kind: sluice.UsageWindow},
	{name: "quota of a day", marks: []string{"*perday*"}, field: "quotaid", kind: sluice.UsageWindow, until: nextPacificDay},
	{name: "quota of a day", marks: []string{"*perday*", "terminalquotaerror"}, kind: sluice.UsageWindow},
	{name: "usage limit until a stated day", words: []string{
		"*you will regain access on*"}, kind: sluice.UsageWindow},
	// https://openrouter.ai/docs/api-reference/limits: the day is UTC's.
	{name: "free models of a day", words: []string{"*free-models-per-day*"}, kind: sluice.UsageWindow, until: nextDay},
	{name: "quota of a day", words: []string{"*_per_day*"}, kind: sluice.UsageWindow, until: nextPacificDay},
	{name: "quota of a day in words", words: []string{"*too many tokens per day*", "*daily quota*", "*daily limit*", "*weekly *limit*",
		"*weekly *quota*",
		"*daily usage limit*", "*quota*per day*exceeded*", "*per day limit exceeded*", "*tokens per day*exceeded*", "*requests per day*exceeded*",
		"*exceeded*limit*per day*"},
		kind: sluice.UsageWindow},
	{name: "allowance of a month", words: []string{"*trial key*limited to*month*", "*calls*per month*", "*calls / month*",
		"*monthly usage limit*", "*premium request allowance*", "*premium requests*exceeded*", "*exceeded*premium request*"},
		kind: sluice.UsageWindow, until: nextMonth},
	{name: "usage window in words", words: windowWords[:], kind: sluice.UsageWindow},

	{name: "request larger than the whole limit", statuses: refusals,
		words: []string{"*request too large for *limit*requested*"}, kind: sluice.ContextLength, tooLarge: true},
	{name: "content filtered", marks: []string{"contentfilter*", "contentpolicyviolation*",
		"responsibleaipolicyviolation", "moderationblocked", "flaggedinput", "datainspectionfailed",
		"contentblocked", "stopcandidateexception", "blockedpromptexception", "prohibitedcontent", "jailbreak", "sensitivewords*"},
		kind: sluice.ContentFilter},
	{name: "content blocked by Google", marks: []string{"*"}, field: "blockreason", kind: sluice.ContentFilter},
	{name: "context length", marks: []string{"contextlengthexceeded", "tokenslimitreached", "*contextwindowexceeded*",
		"exceedcontextsizeerror", "stringabovemaxlength"}, kind: sluice.ContextLength},
	{name: "context length in words", statuses: []int{0, 200, 400, 413, 422, 500},
		words: []string{"*maximum context length*",

			"*exceed context limit*",
			"*context limit reached*", "*context limit exceeded*",
			"*prompt contains*tokens*maximum*",
			"*out of room in the model's context window*",
			"*exceeded max context*", "*maximum prompt length*", "*tokens when context the overflows*", "*reduce the length of*",
			"*body too large for *", "*inputs*tokens*must be <=*",
			"*tokens in the prompt cannot exceed*", "*too large for model with*"},
		kind: sluice.ContextLength},
	{name: "content filtered in words", statuses: []int{0, 200, 400, 403, 422, 500},
		words: []string{"*content management policy*", "*content filter*",
			"*flagged as potentially violating*", "*violat*usage polic*", "*violat*content polic*", "*violat*safety*polic*", "*violat*guideline*",
			"*flagged*moderation*", "*requires moderation*", "*rejected*safety system*", "*blocked*safety*",
			"*content exists risk*", "*blocked for reason*", "*blocked or filtered*", "*response was blocked*", "*prompt*blocked*",
			"*prohibited content*", "*inappropriate content*", "*finishreasonsafety*", "*finish_reason*safety*"}, kind: sluice.ContentFilter},

	{name: "quota of a minute", marks: []string{"*perminute*"}, kind: sluice.RateLimit},
	{name: "overloaded, in words of a limit", statuses: []int{0, 429}, words: []string{"*no capacity available*",
		"*high load*", "*负载*饱和*"},
		kind: sluice.Overloaded},
	{name: "prepaid credits are depleted", statuses: []int{0, 402, 429}, words: []string{"*credit*depleted*"},
		kind: sluice.QuotaExhausted},
	{name: "payment required of Google", statuses: []int{402}, marks: []string{"resourceexhausted"}, kind: sluice.QuotaExhausted},
	// Google says "You exceeded your current quota" of limits per minute too, but marks them.
	{name: "resource exhausted", statuses: []int{0, 200, 429}, marks: []string{"resourceexhausted"},
		kind: sluice.RateLimit, either: true, also: "quota_exhausted: Google says the same of a day's quota and of capacity"},
	{name: "quota of Google", dialect: Gemini, statuses: []int{0, 200, 429}, words: []string{"*exceeded your current quota*"},
		kind: sluice.RateLimit, either: true, also: "usage_window: Google says the same of a day's quota"},
	{name: "quota in words", statuses: []int{0, 200, 400, 401, 403, 429}, words: []string{"*exceeded your current quota*",
		"*check your plan and billing*"},
		kind: sluice.QuotaExhausted, waited: true, also: "rate_limit: Google says the same of limits per minute"},
	{name: "quota exhausted in words", statuses: []int{0, 200, 400, 401, 402, 403, 429}, words: moneyWords[:],
		kind: sluice.QuotaExhausted},

	{name: "model not found", marks: []string{"modelnotfound", "deploymentnotfound", "notfounderror"},
		statuses: []int{0, 200, 400, 403, 404}, kind: sluice.BadRequest},
	{name: "key refused", statuses: []int{0, 200, 400, 401, 403, 404, 500}, marks: []string{"invalidapikey",
		"apikeyinvalid", "missingapikey", "invalidauthentication*", "*authenticationerror", "permissionerror",
		"permissiondenied*", "unauthenticated", "unauthorized*", "unsupportedcountryregionterritory",
		"accountdeactivated", "accessdenied*", "unrecognizedclientexception", "expiredtoken*", "forbidden*",
		"nocredentialserror", "defaultcredentialserror", "refresherror", "invalidsignatureexception", "authenticationfailed",
		"tokenexpired", "oauth*", "invalidtoken*", "apikeyexpired", "invalidclienttokenid"}, kind: sluice.Auth},
	{name: "key refused in words", statuses: []int{0, 200, 400, 401, 403}, words: authWords[:], kind: sluice.Auth},

	// Written by Envoy, which many providers stand behind: the model never saw the request.
	{name: "proxy lost its connection", statuses: []int{0, 502, 503, 504},
		words: []string{"*upstream connect error*", "*connection termination*", "*connection reset*"},
		kind:  sluice.Network},
	// OpenAI; 429, formerly 503
	{name: "ramp too fast", marks: []string{"slowdown"}, kind: sluice.RateLimit},
	{name: "overloaded", statuses: throttles, marks: []string{"overloaded*", "serverisoverloaded",
		"engineoverloaded*", "modeloverloaded*", "unavailable", "serviceunavailable*", "modelnotreadyexception",
		"capacityexceeded*", "serveroverloaded*"}, kind: sluice.Overloaded},
	{name: "overloaded in words", statuses: []int{0, 200, 429, 500, 502, 503, 529}, words: []string{"*overloaded*",
		"*at capacity*", "*server is busy*",
		"*repeated 529*", "*experiencing high*", "*bedrock is unable to process*"},
		kind: sluice.Overloaded},
	// https://docs.anthropic.com: subscriptions state their windows only in these headers.
	{name: "usage window in headers", statuses: []int{429}, header: "rejected", kind: sluice.UsageWindow},
	{name: "rate limit", statuses: throttles, marks: []string{"ratelimit*", "toomanyrequests*", "throttling*", "*throttlingexception", "throttled*",
		"requestthrottled*", "tokens", "requests", "creditlimit", "queuefull", "*ratelimiterror", "concurrencylimit*",
		"requestratetoolarge", "limitreached"}, kind: sluice.RateLimit},
	{name: "rate limit in words", statuses: []int{0, 400, 403, 429, 503}, words: rateWords[:], kind: sluice.RateLimit},
	{name: "limit in words", class: 429, statuses: []int{0}, words: []string{"*limit exceeded*", "*limit reached*",
		"*limit*has been reached*",
	}, kind: sluice.RateLimit},
	{name: "rate limit by status", statuses: []int{429}, kind: sluice.RateLimit, either: true,
		also: "quota_exhausted: a 429 that says no more may also mean that no credit is left"},

	{name: "server error in words", statuses: []int{0, 200}, words: []string{"internal server error*", "*internal error has occurred*",
		"*internal error occurred*", "bad gateway*", "the server had an error*", "*error occurred while processing your request*",
		"*error occurred while generating*"},
		kind: sluice.ServerError},
	// Anthropic's 504
	{name: "provider timed out", statuses: []int{0, 200, 500, 504}, marks: []string{"timeouterror"}, field: "type",
		kind: sluice.ServerError},
	{name: "timed out", statuses: []int{0, 200, 408, 499, 500, 502, 503, 504}, marks: []string{"deadlineexceeded*", "requesttimeout*",
		"*timeout", "*timeouterror", "*timeoutexception", "etimedout", "esockettimedout", "uinderrconnecttimeout",
		"underr*timeout", "*timedout"}, kind: sluice.Timeout},
	{name: "asks to come back", statuses: []int{0}, words: []string{"*请*秒后*试*", "*请在*后*试*", "*try again in * second*", "*try again after * second*",
		"*please retry after * second*"}, kind: sluice.RateLimit},
	{name: "timed out in words", statuses: []int{0, 408, 504}, words: timeoutWords[:], kind: sluice.Timeout},
	{name: "connection failed", statuses: []int{0}, marks: networkMarks[:], kind: sluice.Network},
	{name: "connection failed in words", statuses: []int{0}, words: networkWords[:], kind: sluice.Network},

	{name: "timed out by status", statuses: []int{408, 504, 522, 524}, kind: sluice.Timeout},
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
	{name: "server error", class: 500, statuses: []int{0, 200}, marks: []string{"servererror", "apierror",
		"internalservererror", "*enginedeaderror", "internalerror", "internal", "internalserverexception", "badgateway*", "unknownerror", "modelerrorexception"},
		kind: sluice.ServerError},
	{name: "bad request", class: 400, statuses: []int{0, 200}, marks: []string{"invalidrequest*", "badrequest*", "unprocessableentity*",
		"invalidargument", "validationexception", "requesttoolarge", "unsupportedparam*", "invalidparameter*", "invalidvalue", "notfound",
		"notfoundexception",
		"invalidtype"}, kind: sluice.BadRequest},
	{name: "bad request, loosely", class: 400, statuses: []int{0, 200}, marks: []string{"*notfound*", "unsupported*"}, loose: true,
		kind: sluice.BadRequest},
	{name: "bad request in words", statuses: []int{0}, words: []string{"*is not found for api version*",
		"*unsupported parameter*"},
		kind: sluice.BadRequest},
	{name: "bad request in words, loosely", statuses: []int{0}, words: []string{"invalid *"}, loose: true,
		kind: sluice.BadRequest},
}

// nextMonth returns the first of the next month in UTC.
func nextMonth(now time.Time) time.Time {
	y, m, _ := now.UTC().Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
}

// nextDay returns the next midnight in UTC.
func nextDay(now time.Time) time.Time {
	y, m, d := now.UTC().Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

// nextPacificDay returns the next midnight in Los Angeles, when Google's days begin:
// https://ai.google.dev/gemini-api/docs/rate-limits. Without a database of zones it is that of standard time.
func nextPacificDay(now time.Time) time.Time {
	at, ok := zone("America/Los_Angeles")
	if !ok {
		at = time.FixedZone("", -8*3600)
	}
	y, m, d := now.In(at).Date()
	return wall(y, m, d+1, 0, 0, at).UTC()
}
