package provider

// sentences are the sentences with which providers and agents refuse a call, where no name and no prefix says that they
// are an error. They are anchored at the sentence's beginning, in lower case with straight quotes; * is any text. That
// a sentence is here says only that it is an error: which one, the rules say.
var sentences = [...]string{
	// plans: Claude Code, Codex, Copilot, Gemini CLI
	"you've hit your *", "you have hit your *", "you have reached your *",
	"you've reached your specified*",
	"sorry, you've hit *", "sorry, you have *exceeded*",
	"sorry, you've exceeded*", "sorry, your request was rate-limited*", "sorry, you have been rate-limited*",
	"sorry, your request failed*", "you've exceeded your *", "you have exceeded your *", "you exceeded your *", "you've exhausted your*",
	"you have exhausted your *", "you've used all *", "you have used all *", "you've used up *", "you have used up *",
	"you are out of *", "you're out of *", "you have run out of *", "you've run out of *", "you have no *left*",

	"limit reached", "limit reached *resets*", "approaching usage limit reached*", "your limit will reset*",
	"your quota will reset*", "limits will reset *", "wait * for your limit to reset*",
	"daily quota limit*",
	"insufficient_quota*",
	"reached the end of your *", "your account has reached*", "your account reached*",

	// money

	"your account is not active*", "billing hard limit*",
	"this request requires more credits*",
	"your team *used all available credits*", "this organization has been disabled*",

	// rates
	"rate limited*",
	"rate-limited*", "request rate limited*", "request was throttled*", "request was rate limited*", "the request was throttled*",
	"too many concurrent*", "request too large for *", "requests to the *have exceeded*",
	"this request would exceed*rate limit*", "number of request*has exceeded*",
	"number of concurrent*exceeded*", "resource exhausted*", "resource has been exhausted*",
	"you have been rate limited*", "you are being rate limited*", "you are rate limited*", "your account is rate limited*",
	"api rate limit *", "exceeded retry limit*", "server is temporarily limiting requests*",
	"request rate increased too quickly*", "slow down*", "throttled by*", "please slow down*",
	"max * concurrency*", "account reached max *", "provider returned error*",

	// capacity
	"overloaded", "overloaded.*", "overloaded *",

	"this model is currently experiencing*", "the system is currently experiencing*",
	"we're currently experiencing*", "we are currently experiencing*",
	"the service is temporarily *",
	"repeated 529*", "high demand*", "the model * is currently overloaded*",

	// size and content
	"this model's maximum context length*",
	"request too large*",
	"maximum context length*", "this endpoint's maximum context length*",
	"codex ran out of room in the model's context window*",
	"blocked: candidate*", "your request was rejected*", "blocked: prompt*", "block_reason: *", "block_reason=<*", "content filter*", "content exists risk*",
	"the response was blocked*",

	// keys
	"please run /login*",
	"your api key *", "api key is *",
	"unauthorized*", "not logged in*",
	"the security token included in the request is *", "access denied*", "permission denied*on resource*",
	"country, region, or territory not supported*", "your session has expired*",
	"user not found*", "your organization has been disabled*",

	// the network, timeouts, servers
	"connection error*",
	"connection aborted*", "connection terminated*", "connect econn*", "connect etimedout*", "read econnreset*",
	"request exceeded time limit*",
	"the operation was aborted*timeout*", "timeout of *exceeded*", "timed out*", "timeout awaiting*", "timeout waiting*", "deadline exceeded*",
	"context deadline exceeded*", "net/http: *", "dial tcp *", "fetch failed*", "network error*", "network request failed*",
	"socket hang up*", "getaddrinfo *", "other side closed*", "unexpected eof*", "eof", "no such host*", "no route to host*",
	"name or service not known*", "temporary failure in name resolution*",
	"remote end closed*", "server disconnected*", "peer closed connection*", "broken pipe*", "stream disconnected before completion*",
	"stream error*", "error decoding response body*", "tls handshake*", "tls: *", "x509: *", "certificate verify failed*",
	"self-signed certificate*", "self signed certificate*", "unable to verify the first certificate*",
	"ssl: *", "ssl_error*", "ssl connect error*", "net::err_*", "upstream connect error*",
	"idle timeout waiting*", "internal server error*", "an internal error has occurred*",
	"an internal error occurred*", "bad gateway*", "gateway time*", "the server had an error*", "server error*",
	"an error occurred while processing*",
	"operation was aborted due to timeout*", "http2: *", "client.timeout *", "max retries exceeded with url*", "connection to * failed*",
	"empty reply from server*", "connection was closed*", "the connection was *", "premature close*",
	"attempt * failed*", "retrying in *", "request failed *", "request failed:*", "response stalled*", "proxyconnect *", "lookup *no such host*",
	"read tcp *", "write tcp *", "post \"http*",

	// Spanish, French, German, Portuguese, Italian, Chinese, Japanese, Korean: the sentences of plans, translated
	"has alcanzado *límite*", "has llegado *límite*", "se alcanzó *límite*", "se ha alcanzado *límite*", "límite de *alcanzado*",
	"ha alcanzado *límite*", "alcanzaste *límite*", "llegaste *límite*", "demasiadas solicitudes*", "has superado *límite*", "has agotado *",
	"vous avez atteint *limite*", "tu as atteint *limite*", "limite d'utilisation*atteinte*", "limite de *atteinte*", "vous avez dépassé *",
	"trop de requêtes*", "sie haben *limit*erreicht*", "du hast *limit*erreicht*", "limit *erreicht*", "nutzungslimit erreicht*",
	"sie haben ihr*limit*", "zu viele anfragen*", "você atingiu *limite*", "limite de *atingido*", "limite de *excedido*", "muitas solicitações*",
	"você excedeu *", "hai raggiunto *limite*", "troppe richieste*", "limite di *raggiunto*",
	"*已达到*限*", "*已达*上限*", "*达到*使用上限*", "*达到*限制*", "*额度已*用*", "*配额已*", "*超出*配额*", "*超过*限制*",
	"*達到*上限*", "*已達*上限*", "*上限に達し*", "*制限に達し*", "*リクエストが多すぎ*", "*한도에 도달*", "*요청이 너무 많*",
}
