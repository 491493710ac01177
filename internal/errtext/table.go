package errtext

import (
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
)

// Pattern is a row of the table by which errors are read. The first row that holds decides. A row holds if the error bears one of
// its names, or says one of its words; a row without both, by its status. Everywhere * is any text.
type Pattern struct {
	Name    string
	Kind    sluice.Kind
	on      string   // the statuses on which it may stand; 0 is an error without one. Empty: those of its kind
	names   string   // types, codes, exceptions: letters and digits in lower case. "field=name" stands in that field alone
	words   []string // what it says: see says
	class   int      // it knows no more than a class of errors, which this status is
	Also    string   // what the same error may mean as well
	Always  bool     // Also is true of every provider, and not only of an unknown one
	example string   // an error by which the row decides; a number in front is its HTTP status
	says    []says   // the words, compiled

	Until func(now time.Time) time.Time // when it is over, if nothing else says
}

// places are the statuses on which providers have put errors of a kind, where a row does not say so itself.
var places = map[sluice.Kind]string{
	sluice.RateLimit:      "0 200 400 403 429 500 502 503 529",
	sluice.UsageWindow:    "0 200 400 402 403 429 500 502 503",
	sluice.QuotaExhausted: "0 200 400 401 402 403 429 500 502 503",
	sluice.Overloaded:     "0 200 429 500 502 503 529",
	sluice.ContextLength:  "0 200 400 413 500",
	sluice.ContentFilter:  "0 200 400 403 500",
	sluice.Auth:           "0 200 400 401 403",
	sluice.Timeout:        "0 200 408 500 502 503 504",
	sluice.ServerError:    "0 200 500 502",
	sluice.BadRequest:     "0 200 400",
	sluice.Network:        "0",
}

// stands reports whether a row may hold on a status. A status without a meaning of its own is one of its class.
func (p *Pattern) stands(status int) bool {
	on := p.on
	if on == "" {
		on = places[p.Kind]
	}
	const own = " 0 300 301 302 303 305 307 308 401 402 403 404 408 409 413 424 425 429 502 503 504 522 524 529 "
	if text := strconv.Itoa(status); strings.Contains(own, " "+text+" ") {
		return strings.Contains(" "+on+" ", " "+text+" ")
	}
	return strings.Contains(" "+on+" ", " "+strconv.Itoa(status/100*100)+" ")
}

// NotAllowed is the row of codes that refuse a permission, which another request with the same key may have.
const NotAllowed = "not allowed"

const alsoQuota = "quota_exhausted: Google says the same of a day's quota and of capacity"

// table has its rows from certain and final errors to those that a status alone suggests: money, usage windows, size and content,
// keys, overload, rate limits, timeouts and the network, statuses, classes. Sources are the providers' error references and the
// texts in provider/testdata.
var table = compile([]Pattern{
	{Name: "spend cap of the tier", Kind: sluice.QuotaExhausted, Until: nextMonth, names: "enforcedspendlimitreached",
		example: `429 {"error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`},
	{Name: "budget held by calls in flight", Kind: sluice.RateLimit, on: "402",
		names:   "inflightbudgetexhausted openrouterinflightbudget",
		example: `402 {"error":{"code":402,"message":"Held","metadata":{"reason":"in_flight_budget_exhausted"}}}`},
	// The numbers are those of MiniMax (base_resp) and Z.ai, whose words are in several languages:
	// https://platform.minimax.io/docs/api-reference/errorcode and https://docs.bigmodel.cn/cn/api/api-code.
	{Name: "quota exhausted", Kind: sluice.QuotaExhausted,
		names: `baseresp=1008 code=1113 code=1309 insufficientquota creditbalanceexhausted *spendlimitexceeded
			organizationusagelimitexceeded billinghardlimitreached billinglimit* billingnotactive billingerror
			insufficientbalance insufficientcredits insufficientfunds weightexceedsbudget budgetexceeded exceededbudget
			openroutercredits openrouterkeylimit servicequotaexceededexception creditexhausted paymentrequired*
			exceededcurrentquotaerror arrearage accountoverdue* insufficient*quota* allocationquota*`,
		example: `429 {"error":{"message":"No more.","type":"insufficient_quota","code":"insufficient_quota"}}`},
	{Name: "usage window of a plan", Kind: sluice.UsageWindow,
		names: `code=1304 code=1308 code=1310 usagelimitreached usagelimitexceeded usagelimitreachederror usagenotincluded
			limitreached=limitreached`,
		example: `429 {"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"free"}}`},
	{Name: "quota of a day", Kind: sluice.UsageWindow, Until: nextPacificDay, names: "quotaid=*perday*",
		example: `429 {"error":{"details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]}]}}`},
	{Name: "quota of a day in a code", Kind: sluice.UsageWindow, names: "*perday* terminalquotaerror",
		example: "TerminalQuotaError: You have exhausted your daily quota on this model."},
	// The day is UTC's.
	{Name: "free models of a day", Kind: sluice.UsageWindow, Until: nextDay, words: []string{"free-models-per-day*"},
		example: `429 {"error":{"code":429,"message":"Rate limit exceeded: free-models-per-day-high-balance. "}}`},
	{Name: "allowance of a month", Kind: sluice.UsageWindow, Until: nextMonth,
		words: []string{"api calls month|api calls per month|monthly usage limit",
			"premium request*|premium model ~ exceed*|exhaust*|quota|allowance"},
		example: `429 {"message":"You are using a Trial key, which is limited to 1000 API calls / month."}`},
	{Name: "usage window in words", Kind: sluice.UsageWindow,
		words: []string{
			`usage limit*|session limit|hour limit|5-hour limit|weekly limit|plan limit|message limit ~ reached|hit|exceeded`,
			"hit your limit", "out of ~ usage|messages", "usage quota ~ exceeded|reached|hit", "quota will be replenished", "alcanz* ~ límite"},
		example: "You've hit your session limit · resets 2:30pm (Pacific/Auckland)"},

	{Name: "context length", Kind: sluice.ContextLength,
		names: `code=1261 contextlengthexceeded tokenslimitreached *contextwindowexceeded* exceedcontextsizeerror stringabovemaxlength`,
		words: []string{
			`maximum context length|maximum prompt length|reduce the length of|exceed context limit|exceeds context limit`,
			"out of room in the model's context window"},
		example: `400 {"error":{"message":"Please reduce.","type":"invalid_request_error","code":"context_length_exceeded"}}`},
	{Name: "content filtered", Kind: sluice.ContentFilter,
		names: `baseresp=1026 baseresp=1027 code=1301 blockreason=* contentfilter* contentpolicyviolation*
			responsibleaipolicyviolation moderationblocked flaggedinput datainspectionfailed contentblocked
			stopcandidateexception blockedpromptexception prohibitedcontent jailbreak sensitivewords*`,
		words: []string{"content exists risk",
			`violat*|flagged|blocked|rejected|filtered|moderated ~ content|policy|policies|safety|moderation|guidelines|prompt|input|
				output|response|candidate`, "prompt injection ~ detected|blocked|found", "inappropriate ~ content"},
		example: `400 {"error":{"code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`},

	{Name: "quota of a minute", Kind: sluice.RateLimit, names: "*perminute*",
		example: `429 {"error":{"details":[{"violations":[{"quotaId":"GenerateContentInputTokensPerModelPerMinute-FreeTier"}]}]}}`},
	{Name: "overloaded in words", Kind: sluice.Overloaded,
		words: []string{"no healthy upstream", "worker ~ limit reached", "*负载*饱和*", "unable to process your request",
			"capacity|slots|workers|instances ~ no|not enough|insufficient|exceeded",
			`server|servers|deployment|model|models|engine|provider|service|upstream|system|api|backend|we're|currently ~ overloaded|busy|
				at capacity|high demand|high load|high traffic|unavailable|temporarily not available|currently not available|
				loading|warming up|scaling up|not ready|saturated`},
		example: "Selected model is at capacity. Please try a different model."},
	{Name: "quota exhausted in words", Kind: sluice.QuotaExhausted,
		words: []string{
			`balance|credit|credits|funds|prepaid ~ insufficient|exhausted|depleted|too low|not enough|no|out of|ran out|run out|used all|
				requires more|expired`,
			"billing hard limit|key limit|budget ~ reached|exceeded|hit|over",
			"account ~ not active|overdue|unpaid|arrears|suspended", "payment ~ required|failed|declined",
			"free allocated quota|no payment method|*余额不足*",
			"trial|trial credits|credits|api credits ~ used up|been used|ended|expired|exceeded",
			"spend cap|spending cap|spend limit|spending limit ~ reached|exceeded|breached|hit|over",
			"free tier quota|free tier ~ exhausted|exceeded|used up"},
		example: `402 {"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}`},
	{Name: "resource exhausted", Kind: sluice.RateLimit, on: "0 200 429", Always: true, Also: alsoQuota,
		names:   "resourceexhausted",
		example: `429 {"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}`},
	{Name: QuotaInWords, Kind: sluice.QuotaExhausted, Also: "rate_limit: Google says the same of limits per minute",
		words:   []string{"exceeded your current quota|check your plan and billing"},
		example: "You exceeded your current quota, please check your plan and billing details."},

	{Name: "model not found", Kind: sluice.BadRequest, on: "0 200 400 403 404",
		names:   "modelnotfound deploymentnotfound notfounderror",
		example: `403 {"error":{"message":"Project proj_x does not have access to model gpt-5","code":"model_not_found"}}`},
	{Name: "blocked in words", Kind: sluice.Blocked, on: "0 200 400 403 429 500 502 503",
		words:   []string{"you have been blocked|just a moment|attention required|requested url was rejected|incapsula incident|request blocked|web page blocked"},
		example: "403 Attention Required! Sorry, you have been blocked"},
	{Name: "not permitted in words", Kind: sluice.Rejected, on: "0 200 400 403 404",
		words: []string{
			`region|country|location|account|org|organization|plan|subscription ~ not supported|not available|not eligible|not include`,
			"organization has disabled|disabled for your org"},
		example: `400 {"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}`},
	{Name: "key refused", Kind: sluice.Auth, on: "0 200 400 401 403 404 500",
		names: `baseresp=1004 baseresp=2049 invalidapikey apikeyinvalid missingapikey invalidauthentication* *authenticationerror
			unauthenticated unauthorized* accountdeactivated unrecognizedclientexception expiredtoken* nocredentialserror
			defaultcredentialserror refresherror invalidsignatureexception authenticationfailed tokenexpired oauth*
			invalidtoken* apikeyexpired invalidclienttokenid`,
		example: `401 {"type":"error","error":{"type":"authentication_error","message":"x"}}`},
	{Name: NotAllowed, Kind: sluice.Auth, on: "0 200 400 401 403 404 500",
		names:   `permissionerror permissiondenied* unsupportedcountryregionterritory accessdenied* forbidden*`,
		example: `403 {"error":{"code":403,"message":"Permission denied","status":"PERMISSION_DENIED"}}`},
	{Name: "key refused in words", Kind: sluice.Auth,
		words: []string{
			`api key|apikey|api_key|*_api_key|x-api-key|subscription key|access key|token|credentials|authentication|oauth|
				login ~ invalid|expired|missing|revoked|incorrect|not valid|not found|not set|required|failed|fails|no|wrong`,
			"token ~ refreshed",
			`please run login|not logged in|not authenticated|missing environment variable|organization has been disabled`,
			"territory not supported|authentication error|expired key"}, example: "Invalid API key · Please run /login"},

	// Written by Envoy, which many providers stand behind: the model never saw the request.
	{Name: "proxy lost its connection", Kind: sluice.Network, on: "0 502 503 504",
		words:   []string{"upstream connect error|connection termination|connection reset"},
		example: "503 upstream connect error or disconnect/reset before headers. reset reason: connection termination"},
	// 429, formerly 503
	{Name: "ramp too fast", Kind: sluice.RateLimit, names: "slowdown",
		example: `503 {"error":{"message":"Slow down","type":"service_unavailable_error","code":"slow_down"}}`},
	{Name: "overloaded", Kind: sluice.Overloaded,
		names: `code=1312 overloaded* serverisoverloaded engineoverloaded* modeloverloaded* unavailable serviceunavailable*
			modelnotreadyexception capacityexceeded* serveroverload*`,
		words:   []string{"?overloaded"},
		example: `529 {"type":"error","error":{"type":"overloaded_error","message":"x"}}`},
	{Name: "rate limit", Kind: sluice.RateLimit,
		names: `baseresp=1002 baseresp=1039 code=1302 code=1303 ratelimit* toomanyrequests* throttling* *throttlingexception
			throttled* requestthrottled* type=tokens type=requests creditlimit queuefull *ratelimiterror concurrencylimit*
			requestratetoolarge limitreached`,
		words: []string{"rate limit|rate limits|ratelimit|rate-limit|concurrency ~ exceed*|reached|hit|trigger*|over",
			`rate limited|rate-limited|too many requests|too many concurrent|too many tokens please wait|too many tokens per|
				too many tokens for team|slow down|limiting requests|request rate increased|resource exhausted|
				resource has been exhausted|request was throttled`},
		example: `429 {"type":"error","error":{"type":"rate_limit_error","message":"Rate limited"}}`},

	{Name: "parameter out of range", Kind: sluice.BadRequest,
		words: []string{
			`max_tokens|maxtokens|max_completion_tokens|maximum tokens you|array|string ~ exceed*|too large|too long|too high|too close|
				invalid`},
		example: "maxTokens (8192) is too close to contextLength (8096), which doesn't leave room for response."},
	{Name: "context length in words", Kind: sluice.ContextLength,
		words: []string{
			`context length|context window|context size|prompt|input|inputs|conversation|messages|tokens|history ~ too long|too large|
				too big|too many|exceed*|overflow*|longer than|larger than|must be less than|too small`,
			"token limit|context limit ~ exceeded|hit|reached", "context overflow|range of input length|request entity too large"},
		example: `400 {"error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`},
	{Name: "limit in words", Kind: sluice.RateLimit, on: "0 403 429 500 502 503 529",
		words: []string{
			`limit|limits|quota|allowance|usage|requests|messages|calls|throughput|capacity ~ exceed*|reached|hit|exhausted|used up|
				used all|too many|throttled|too frequent|run out of`},
		example: "You have exhausted your capacity on this model. Your quota will reset after 5s."},
	{Name: "rate limit by status", Kind: sluice.RateLimit, on: "429", Always: true,
		Also: "quota_exhausted: a 429 that says no more may also mean that no credit is left", example: "429 "},

	{Name: "server error in words", Kind: sluice.ServerError,
		words:   []string{"internal server error|internal error|server had an error|bad gateway", "error occurred while processing"},
		example: `500 {"error":{"message":"The server had an error while processing your request. Sorry about that!"}}`},
	// Anthropic's 504
	{Name: "provider timed out", Kind: sluice.ServerError, on: "0 200 500 504", names: "type=timeouterror",
		example: `504 {"type":"error","error":{"type":"timeout_error","message":"x"}}`},
	{Name: "timed out", Kind: sluice.Timeout,
		names: `baseresp=1001 deadlineexceeded* requesttimeout* *timeout *timeouterror *timeoutexception etimedout esockettimedout
			uinderrconnecttimeout underr*timeout *timedout`,
		words: []string{"timed out|deadline exceeded|timeout awaiting|i/o timeout", "timeout of ~ exceeded|expired|reached",
			`request|response|operation|connection|api|model|stream|server|provider|upstream ~ timeout|time out|took too long|
				not respond*|stopped responding|exceeded time limit`}, example: "openai.APITimeoutError: Request timed out."},
	{Name: "connection failed", Kind: sluice.Network,
		names: `apiconnectionerror connecterror connectionerror connectionreset* connectionrefused* connectionaborted* brokenpipe*
			remotedisconnected *protocolerror readerror writeerror networkerror proxyerror ssl*error sslcert*
			newconnectionerror maxretryerror nameresolutionerror clientconnector* clientoserror clientpayloaderror
			serverdisconnected* chunkedencodingerror incompleteread* gaierror urlerror endpointconnectionerror
			connectionclosed* unknownhostexception connectexception socketexception socketerror fetcherror econn* enotfound
			eaiagain epipe ehostunreach enetunreach eproto errnetwork errstream* errtls* underr* *selfsigned* unableto*
			certhasexpired transporterror`,
		words: []string{
			`connection error|fetch failed|socket hang up|no such host|getaddrinfo|broken pipe|x509|tls handshake|error sending request|
				dial tcp|unexpected eof|name or service not known|max retries exceeded with url|stream disconnected|
				premature close|network error|failed to fetch|certificate verify failed|local issuer certificate|
				error decoding response body`,
			`connection|socket|stream|host|network|tls|ssl|certificate|dns|proxy|server|endpoint|api|internet|gateway ~ reset|refused|
				lost|unreachable|closed by|closed before|terminated by|aborted by|could not resolve|unable to connect|
				cannot connect|could not connect|failed to connect|cannot reach|could not reach|hung up|disconnected|
				not established|ended without|self-signed|untrusted`},
		example: "openai.APIConnectionError: Connection error."},

	{Name: "timed out by status", Kind: sluice.Timeout, on: "408 504 522 524", example: "524 error code: 524"},
	{Name: "overloaded by status", Kind: sluice.Overloaded, on: "529", example: "529 "},
	{Name: PaymentRequired, Kind: sluice.QuotaExhausted, on: "402", example: "402 "},
	{Name: "key refused by status", Kind: sluice.Auth, on: "401 403", example: "401 "},
	// The official SDKs send these again.
	{Name: "conflict or dependency", Kind: sluice.ServerError, on: "409 424 425", example: "409 "},
	{Name: Redirect, Kind: sluice.BadRequest, on: "300 301 302 303 305 307 308", example: "308 "},

	// An error inside a good answer or a stream has no status of its own: its type says no more than which class it is.
	{Name: "server error", Kind: sluice.ServerError, class: 500, on: "0 200",
		names: `servererror type=apierror code=apierror internalservererror *enginedeaderror internalerror internal
			internalserverexception badgateway* unknownerror modelerrorexception`,
		example: `{"error":{"message":"x","type":"server_error"}}`},
	{Name: "bad request", Kind: sluice.BadRequest, class: 400, on: "0 200",
		names: `baseresp=2013 baseresp=1042 invalidrequest* badrequest* unprocessableentity* invalidargument validationexception
			requesttoolarge unsupportedparam* unsupportedvalue invalidparameter* invalidvalue notfound notfoundexception
			invalidtype`, example: `{"error":{"message":"x","type":"invalid_request_error"}}`},
	{Name: "bad request in words", Kind: sluice.BadRequest,
		words: []string{
			`model|deployment|parameter|argument|value|temperature|top_p|response_format|tool_choice|max_tokens ~ not found|
				does not exist|doesn't exist|not supported|unsupported|unknown|invalid|not a valid|out of range|no such|
				bigger than|must be`}, example: "Unsupported parameter: 'max_tokens' is not supported with this model."},
})

// Names of rows that package provider refines by what it knows besides the text.
const (
	QuotaInWords    = "quota in words"
	PaymentRequired = "payment required"
	Redirect        = "redirect"
)

func compile(rows []Pattern) []Pattern {
	for i := range rows {
		for _, w := range rows[i].words {
			rows[i].says = append(rows[i].says, newSays(w))
		}
	}
	return rows
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
	at, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		at = time.FixedZone("", -8*3600)
	}
	y, m, d := now.In(at).Date()
	return Wall(y, m, d+1, 0, 0, at).UTC()
}
