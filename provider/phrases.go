package provider

// The patterns of rules that have many: in lower case with straight quotes, from a message's beginning to its end, * for
// any text. Many are mere substrings. They are applied only to what already speaks as an error: to a body in an error's
// place, or to the words of a text that errorIn has found. Never to a model's answer, nor to a text as a whole. What a
// clause states in the words of statements needs no pattern here.

var windowWords = [...]string{"*usage limit reached*", "*usage limit has been reached*", "*hit your*usage limit*",
	"*quota will be replenished in*",
	"*hit your limit*", "*hit your session limit*",
	"*reached your session limit*", "*limit reached*resets*", "*hour limit reached*", "*session limit reached*",
	"*limit will reset*", "*for your limit to reset*", "*limits will reset*", "*usage limit exceeded*", "*plan limit reached*",
	"*out of extra usage*", "*exhausted your quota*", "*exhausted your *ly quota*", "*limit reached|*", "*hit your*message limit*",
	"*reached *usage limit*", "*hit the*usage limit*", "*your 5-hour*limit*",
	// translated
	"*has llegado*límite*", "*alcanz*límite*", "*límite*alcanzado*", "*has superado*límite*", "*has agotado*",
	"*avez atteint*limite*", "*as atteint*limite*", "*limite*atteinte*", "*limit*erreicht*", "*atingiu*limite*", "*limite*atingido*",
	"*raggiunto*limite*", "*limite*raggiunto*", "*上限に達し*", "*制限に達し*", "*使用上限*", "*利用上限*", "*使用限制*", "*用量上限*", "*用量限制*",
	"*使用量*上限*", "*한도에 도달*"}

var moneyWords = [...]string{
	"*monthly spending limit*", "*billing hard limit*",
	"*account is not active*billing*", "*requires more credits*", "*quota exceeded*subscription*",
	"*run out of credits*", "*spend limit*reached*", "*spending limit*reached*",
	"*欠费*", "*never purchased credits*",
	"*key limit exceeded*", "*top up*balance*", "*suspended due to*balance*", "*add credits*to continue*",
	"*used all*credits*"}

var authWords = [...]string{"*incorrect api key*", "*invalid x-api-key*", "*invalid api key*", "*api key not valid*", "*invalid subscription key*",
	"*api key*expired*", "*organization has been disabled*", "*please run /login*",
	"*oauth authentication is*", "*invalid bearer token*", "*not logged in*", "*missing api key*", "*no api key*",
	"*security token included in the request*", "*unable to locate credentials*", "*api_key client option must be set*",
	"*country, region, or territory not supported*", "*could not resolve authentication method*",
	"*didn't provide an api key*", "*invalid authentication*",
	"*authentication fails*", "*reauthentication is needed*", "*reauthenticate*", "*re-authenticate*", "*refresh token*", "*authentication_error*", "*authentication error*",
	"*invalid token*", "*unauthorized*", "*invalid credentials*", "*permission denied on resource*",
	"*default credentials were not found*", "*api key*invalid*", "*user not found*", "*not authorized to*"}

var rateWords = [...]string{"*rate limit reached*", "*rate limit is exceeded*", "*rate limit exceeded*", "*exceeded*rate limit*",
	"*would exceed*rate limit*", "*rate limited*", "*rate-limited*", "*limiting requests*", "*too many requests*", "too many tokens, *wait*", "too many tokens per *",
	"*too many concurrent*", "*hit*rate limit*", "*rate limit hit*", "*rate_limit_exceeded*", "*rate_limit_error*",
	"*quota exceeded for*per minute*", "*exhausted your capacity*", "*exceeded*limit*per minute*", "*resource exhausted*",
	"*resource has been exhausted*", "*request was throttled*", "throttled by*", "*concurrency*exceeded*", "*reached max*concurrency*",
	"*exceeded*concurren*", "*requests per minute*", "*tokens per minute*exceeded*", "*request rate increased too quickly*", "*slow down*",
	"*ratelimit*", "*over rate limit*", "*rate limit quota*", "*crossed tpm / rpm*", "*quota exceeded for quota metric*", "*quota metric*limit*",
	"*请求过于频繁*", "*请求过多*", "*速率限制*", "*リクエストが多すぎ*", "*demasiadas solicitudes*", "*trop de requêtes*", "*zu viele anfragen*",
	"*muitas solicitações*", "*troppe richieste*", "*요청이 너무 많*", "*并发*过高*"}

var timeoutWords = [...]string{"*time limit exceeded*", "*timed out*", "*timeout of *exceeded*", "*deadline exceeded*", "*i/o timeout*",
	"*deadline of *exceeded*",
	"*handshake timeout*", "*awaiting headers*", "*idle timeout*",
	"*timeout awaiting*", "*timeout waiting*", "*due to timeout*", "*timeout error*", "*response stalled*", "*timeout exceeded*", "timeout*",
	"*exceeded time limit*"}

// networkMarks are the names that programs give a connection that was not made or broke: of Python's httpx, requests,
// urllib3, aiohttp and botocore, of Node and undici, Java and Go.
var networkMarks = [...]string{"apiconnectionerror", "connecterror", "connectionerror", "connectionreset*", "connectionrefused*",
	"connectionaborted*", "brokenpipe*", "remotedisconnected", "remoteprotocolerror", "localprotocolerror", "protocolerror", "readerror",
	"writeerror", "networkerror", "proxyerror", "sslerror", "sslcert*", "sslzeroreturnerror", "ssleoferror", "newconnectionerror",
	"maxretryerror", "nameresolutionerror", "clientconnector*", "clientoserror", "clientpayloaderror", "serverdisconnected*",
	"chunkedencodingerror", "incompleteread*", "gaierror", "urlerror", "endpointconnectionerror", "connectionclosed*",
	"unknownhostexception", "connectexception", "socketexception", "socketerror", "fetcherror", "econn*", "enotfound", "eaiagain", "epipe",
	"ehostunreach", "enetunreach", "enetdown", "errnetwork", "eproto", "errstreamprematureclose", "underrsocket", "depthzeroselfsignedcert",
	"selfsignedcertinchain", "unabletogetissuercertlocally", "unabletoverifyleafsignature", "certhasexpired", "errtls*",
	"certificateverifyfailed", "sslhandshakeexception", "httpconnectionerror", "transporterror", "apiuserabortederror", "connectionfailed*"}

var networkWords = [...]string{"*fetch failed*", "*socket hang up*",
	"*connection error*", "*getaddrinfo*", "*name or service not known*", "*temporary failure in name resolution*", "*nodename nor servname*",
	"*no such host*", "*remote end closed*", "*broken pipe*",
	"*certificate*verif*", "*self-signed certificate*", "*self signed certificate*", "*local issuer certificate*", "*x509:*", "*tls handshake*",
	"*tls: *", "*ssl*handshake*", "*violation of protocol*", "*other side closed*", "*incomplete chunked read*",
	"*error sending request*", "*dial tcp*", "*ssl_connect*", "*ssl_error*", "*connection attempts failed*",
	"*unexpected eof*", "eof", "*: eof", "*no route to host*", "*net::err_*", "*could not resolve*",
	"*failed to connect*", "*could not connect*", "*couldn't connect*", "*unable to connect*", "*cannot connect*", "*goaway*",
	"*max retries exceeded with url*",
	"*network error*", "*network request failed*",
	"*proxy*connect*", "terminated", "*premature close*", "*winerror 100*", "*errno 111*", "*errno 104*",
	"*errno 101*", "*errno 113*", "*errno -2]*", "*errno -3]*", "*errno 8]*", "*errno 32]*", "*errno 61*", "*errno 54*", "failed to fetch*",
	"*empty reply from server*", "*error decoding response body*", "*transport error*",
	"*internet connection*", "*connectionrefused*", "*stream error*", "*connectionreset*", "*connection to*failed*", "*http2: *"}
