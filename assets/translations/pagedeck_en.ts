<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en" sourcelanguage="en">
<context>
    <name>AdvicePage</name>
    <message numerus="yes">
        <source>Show %Ln dismissed</source>
        <translation>
            <numerusform>Show %Ln dismissed</numerusform>
            <numerusform>Show %Ln dismissed</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Answer</name>
    <message numerus="yes">
        <source>%Ln token(s)</source>
        <translation>
            <numerusform>%Ln token</numerusform>
            <numerusform>%Ln tokens</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Banner</name>
    <message numerus="yes">
        <source>It restarts when %Ln request(s) that have begun are finished.</source>
        <translation>
            <numerusform>It restarts when %Ln request that has begun is finished.</numerusform>
            <numerusform>It restarts when %Ln requests that have begun are finished.</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>CompareForm</name>
    <message numerus="yes">
        <source>%Ln figure(s) are worse beyond noise.</source>
        <translation>
            <numerusform>%Ln figure is worse beyond noise.</numerusform>
            <numerusform>%Ln figures are worse beyond noise.</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Counted</name>
    <message numerus="yes">
        <source>%Ln block(s) moved</source>
        <extracomment>By this name lupdate finds the texts.</extracomment>
        <translation>
            <numerusform>%Ln block moved</numerusform>
            <numerusform>%Ln blocks moved</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln cached block(s) given up</source>
        <translation>
            <numerusform>%Ln cached block given up</numerusform>
            <numerusform>%Ln cached blocks given up</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln more block(s) cached for later</source>
        <translation>
            <numerusform>%Ln more block cached for later</numerusform>
            <numerusform>%Ln more blocks cached for later</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln block(s)</source>
        <translation>
            <numerusform>%Ln block</numerusform>
            <numerusform>%Ln blocks</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln sequence(s) preempted</source>
        <translation>
            <numerusform>%Ln sequence preempted</numerusform>
            <numerusform>%Ln sequences preempted</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln sequence(s)</source>
        <translation>
            <numerusform>%Ln sequence</numerusform>
            <numerusform>%Ln sequences</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln time(s)</source>
        <translation>
            <numerusform>%Ln time</numerusform>
            <numerusform>%Ln times</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln prompt token(s)</source>
        <translation>
            <numerusform>%Ln prompt token</numerusform>
            <numerusform>%Ln prompt tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln output token(s)</source>
        <translation>
            <numerusform>%Ln output token</numerusform>
            <numerusform>%Ln output tokens</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Estimate</name>
    <message numerus="yes">
        <source>%Ln request(s)</source>
        <translation>
            <numerusform>%Ln request</numerusform>
            <numerusform>%Ln requests</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>GhostLine</name>
    <message numerus="yes">
        <source>%1 of %Ln request(s) would fit</source>
        <translation>
            <numerusform>%1 of %Ln request would fit</numerusform>
            <numerusform>%1 of %Ln requests would fit</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln would not (%1 too many)</source>
        <translation>
            <numerusform>%Ln would not (%1 too many)</numerusform>
            <numerusform>%Ln would not (%1 too many)</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Histogram</name>
    <message numerus="yes">
        <source>%Ln measurement(s)</source>
        <translation>
            <numerusform>%Ln measurement</numerusform>
            <numerusform>%Ln measurements</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Playground</name>
    <message numerus="yes">
        <source>Sent %Ln request(s) of all classes: watch the map</source>
        <translation>
            <numerusform>Sent %Ln request of all classes: watch the map</numerusform>
            <numerusform>Sent %Ln requests of all classes: watch the map</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>PrefixTree</name>
    <message numerus="yes">
        <source>%Ln block(s) before</source>
        <translation>
            <numerusform>%Ln block before</numerusform>
            <numerusform>%Ln blocks before</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>Continued by %Ln block(s)</source>
        <translation>
            <numerusform>Continued by %Ln block</numerusform>
            <numerusform>Continued by %Ln blocks</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>PresetChooser</name>
    <message numerus="yes">
        <source>%Ln setting(s) of your own</source>
        <translation>
            <numerusform>%Ln setting of your own</numerusform>
            <numerusform>%Ln settings of your own</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>RequestModel</name>
    <message numerus="yes">
        <source>%Ln request(s)</source>
        <translation>
            <numerusform>%Ln request</numerusform>
            <numerusform>%Ln requests</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln prompt token(s) found in the cache</source>
        <translation>
            <numerusform>%Ln prompt token found in the cache</numerusform>
            <numerusform>%Ln prompt tokens found in the cache</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>preempted %Ln time(s)</source>
        <translation>
            <numerusform>preempted %Ln time</numerusform>
            <numerusform>preempted %Ln times</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>RequestSection</name>
    <message numerus="yes">
        <source>Block table, %Ln block(s)</source>
        <translation>
            <numerusform>Block table, %Ln block</numerusform>
            <numerusform>Block table, %Ln blocks</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>RestartBox</name>
    <message numerus="yes">
        <source>%Ln request(s) have begun and finish first.</source>
        <translation>
            <numerusform>%Ln request has begun and finishes first.</numerusform>
            <numerusform>%Ln requests have begun and finish first.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>Restarting now ends %Ln of them, drawn without a seed.</source>
        <translation>
            <numerusform>Restarting now ends %Ln of them, drawn without a seed.</numerusform>
            <numerusform>Restarting now ends %Ln of them, drawn without a seed.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of this window wait and are asked again of the new engine.</source>
        <translation>
            <numerusform>%Ln of this window waits and is asked again of the new engine.</numerusform>
            <numerusform>%Ln of this window wait and are asked again of the new engine.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of other programs wait: they are told to ask the new engine.</source>
        <translation>
            <numerusform>%Ln of another program waits: it is told to ask the new engine.</numerusform>
            <numerusform>%Ln of other programs wait: they are told to ask the new engine.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln request(s) of this window were asked again.</source>
        <translation>
            <numerusform>%Ln request of this window was asked again.</numerusform>
            <numerusform>%Ln requests of this window were asked again.</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>SettingsPanel</name>
    <message numerus="yes">
        <source>%Ln setting(s)</source>
        <translation>
            <numerusform>%Ln setting</numerusform>
            <numerusform>%Ln settings</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln change(s) before it can be undone as well.</source>
        <translation>
            <numerusform>%Ln change before it can be undone as well.</numerusform>
            <numerusform>%Ln changes before it can be undone as well.</numerusform>
        </translation>
    </message>
</context>
</TS>
