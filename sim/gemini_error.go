package sim

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// geminiError is the body of an error.
// https://google.aip.dev/193
type geminiError struct {
	Error geminiProblem `json:"error"`
}

type geminiProblem struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Status  string         `json:"status"`
	Details []geminiDetail `json:"details,omitempty"`
}

// geminiDetail is one of Google's standard details, with the members of its
// kind.
// https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto
type geminiDetail struct {
	Type string `json:"@type"`

	Reason   string            `json:"reason,omitempty"` // ErrorInfo
	Domain   string            `json:"domain,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	Locale  string `json:"locale,omitempty"` // LocalizedMessage
	Message string `json:"message,omitempty"`

	FieldViolations []fieldViolation `json:"fieldViolations,omitempty"` // BadRequest
	Links           []helpLink       `json:"links,omitempty"`           // Help
	Violations      []quotaViolation `json:"violations,omitempty"`      // QuotaFailure
	RetryDelay      string           `json:"retryDelay,omitempty"`      // RetryInfo
}

type fieldViolation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

type helpLink struct {
	Description string `json:"description"`
	URL         string `json:"url"`
}

type quotaViolation struct {
	Metric     string            `json:"quotaMetric"`
	ID         string            `json:"quotaId"`
	Dimensions map[string]string `json:"quotaDimensions"`
	Value      string            `json:"quotaValue"`
}

const rpc = "type.googleapis.com/google.rpc."

// refusal says every error in words that were seen on the wire. A stream that
// is an array is refused by an array of one error.
// https://github.com/continuedev/continue/issues/8516
func (g gemini) refusal(c *call, r *refusal) (status int, body []byte) {
	var p geminiProblem
	if r.throttle() {
		p = g.throttle(c, r)
	} else {
		p = g.problem(c, r)
	}
	p.Status = map[int]string{
		http.StatusBadRequest:          "INVALID_ARGUMENT",
		http.StatusPaymentRequired:     "RESOURCE_EXHAUSTED",
		http.StatusForbidden:           "PERMISSION_DENIED",
		http.StatusNotFound:            "NOT_FOUND",
		http.StatusTooManyRequests:     "RESOURCE_EXHAUSTED",
		http.StatusInternalServerError: "INTERNAL",
		http.StatusServiceUnavailable:  "UNAVAILABLE",
	}[p.Code]
	if c.array {
		return p.Code, marshal([]geminiError{{p}})
	}
	return p.Code, marshal(geminiError{p})
}

func (g gemini) problem(c *call, r *refusal) geminiProblem {
	p := geminiProblem{Code: http.StatusBadRequest}
	switch r.reason {
	case reasonServerError:
		// https://github.com/google/generative-ai-docs/issues/204
		p.Code = http.StatusInternalServerError
		p.Message = "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting"
	case reasonOverloaded:
		p = g.overloaded()
	case reasonBadKey:
		// https://github.com/continuedev/continue/issues/8516
		p.Message = "API key not valid. Please pass a valid API key."
		p.Details = []geminiDetail{
			{Type: rpc + "ErrorInfo", Reason: "API_KEY_INVALID", Domain: "googleapis.com",
				Metadata: map[string]string{"service": "generativelanguage.googleapis.com"}},
			{Type: rpc + "LocalizedMessage", Locale: "en-US", Message: p.Message},
		}
	case reasonNoKey:
		// https://github.com/PublicAffairs/openai-gemini/issues/92
		p.Code = http.StatusForbidden
		p.Message = "Method doesn't allow unregistered callers (callers without established identity). " +
			"Please use API Key or other form of API consumer identity to call this API."
	case reasonNotJSON:
		// https://ai.google.dev/gemini-api/docs/troubleshooting
		p.Message = "Invalid JSON payload received. Unexpected token."
	case reasonWrongType:
		// As https://github.com/gera2ld/ai.nvim/issues/13
		p.Message = "Invalid value at '" + r.param + "'"
		p.Details = []geminiDetail{{Type: rpc + "BadRequest",
			FieldViolations: []fieldViolation{{Field: r.param, Description: p.Message}}}}
	case reasonNoPrompts:
		// As https://github.com/boldsoftware/sketch/issues/68
		p.Message = g.missing(c)
	case reasonUnknownModel:
		// https://github.com/google/adk-python/issues/200
		p.Code = http.StatusNotFound
		p.Message = "models/" + c.model + " is not found for API version " + c.version + ", or is not supported for " + c.verb +
			". Call ListModels to see the list of available models and their supported methods."
	case reasonTooLong:
		p.Message = fmt.Sprintf("Request payload size exceeds the limit: %d bytes.", maxBody)
	case reasonUnknownPath:
		p.Code, p.Message = http.StatusNotFound, "Requested entity was not found."
	default: // reasonBadRequest
		// https://github.com/google-gemini/gemini-cli/issues/26572
		p.Message = "Request contains an invalid argument."
	}
	return p
}

// missing says that nothing is asked.
func (gemini) missing(c *call) string {
	message := map[endpoint]string{
		embedding: "EmbedContentRequest", embeddingBatch: "BatchEmbedContentsRequest", countPage: "CountTokensRequest",
	}[c.endpoint]
	if message == "" {
		message = "GenerateContentRequest"
	}
	name := geminiPrompt(c.endpoint)
	return "* " + message + "." + name + ": " + name + " is not specified\n"
}

// overloaded is https://ai.google.dev/gemini-api/docs/troubleshooting
func (gemini) overloaded() geminiProblem {
	return geminiProblem{Code: http.StatusServiceUnavailable, Message: "The model is overloaded. Please try again later."}
}

// throttle says that the account may not now.
func (g gemini) throttle(c *call, r *refusal) geminiProblem {
	// Bare, as https://github.com/google-gemini/gemini-cli/issues/2020
	p := geminiProblem{Code: http.StatusTooManyRequests, Message: "Resource has been exhausted (e.g. check quota)."}
	switch {
	case r.reason == reasonSpent:
		// https://github.com/dyad-sh/dyad/issues/3626
		// https://www.developersdigest.tech/errors/api/gemini-api/402-resource-exhausted
		p.Code = http.StatusPaymentRequired
		p.Message = "Your prepayment credits are depleted. Please go to AI Studio at https://ai.studio/projects to manage your project and billing."
	case r.reason == reasonStorm && r.status != http.StatusTooManyRequests:
		p = g.overloaded()
	case r.reason == reasonShortage && !r.vague:
		p = g.shortage(c, &r.shortage)
		if r.hint {
			p.Message += "\nPlease retry in " + waitText(r.wait) + "."
		}
	}
	if r.hint && !r.vague {
		p.Details = append(p.Details, geminiDetail{Type: rpc + "RetryInfo", RetryDelay: wholeSeconds(r.wait)})
	}
	return p
}

// wholeSeconds writes a wait as RetryInfo does: cut down to the second, so that
// only the words tell it all. Where they say "59.44s", it says "59s".
// https://github.com/dimetron/pi-go/pull/177
func wholeSeconds(wait time.Duration) string {
	return strconv.Itoa(int(wait/time.Second)) + "s"
}

// shortage explains a shortage, but for when to come back.
// https://github.com/google-gemini/gemini-cli/issues/13112
func (gemini) shortage(c *call, s *shortage) geminiProblem {
	metric, id := quotaOf(s.dimension)
	metric = "generativelanguage.googleapis.com/" + metric
	return geminiProblem{
		Code: http.StatusTooManyRequests,
		Message: "You exceeded your current quota, please check your plan and billing details. For more information on this error, " +
			"head to: https://ai.google.dev/gemini-api/docs/rate-limits. To monitor your current usage, head to: " +
			"https://ai.dev/rate-limit. \n* Quota exceeded for metric: " + metric + ", limit: " + strconv.Itoa(s.limit) + ", model: " + c.model,
		Details: []geminiDetail{
			{Type: rpc + "Help", Links: []helpLink{{"Learn more about Gemini API quotas", "https://ai.google.dev/gemini-api/docs/rate-limits"}}},
			{Type: rpc + "QuotaFailure", Violations: []quotaViolation{{
				Metric: metric, ID: id, Dimensions: map[string]string{"location": "global", "model": c.model}, Value: strconv.Itoa(s.limit),
			}}},
		},
	}
}

// quotaOf names the quota of a dimension. Google knows no limit on output
// tokens, nor on tokens in and out together; their names are made up.
func quotaOf(d limits.Dimension) (metric, id string) {
	switch d {
	case limits.Requests:
		return "generate_requests_per_model", "GenerateRequestsPerMinutePerProjectPerModel"
	case limits.RequestsPerDay:
		return "generate_requests_per_model_per_day", "GenerateRequestsPerDayPerProjectPerModel"
	case limits.InputTokens:
		return "generate_content_paid_tier_input_token_count", "GenerateContentPaidTierInputTokensPerModelPerMinute"
	case limits.OutputTokens:
		return "generate_content_output_token_count", "GenerateContentOutputTokensPerModelPerMinute"
	default:
		return "generate_content_token_count", "GenerateContentTokensPerModelPerMinute"
	}
}
