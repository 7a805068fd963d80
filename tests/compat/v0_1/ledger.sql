BEGIN TRANSACTION;
CREATE TABLE admitted (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, team TEXT NOT NULL, held_usd TEXT) WITHOUT ROWID;
INSERT INTO "admitted" VALUES('c0f41771333123bc','killed-6408276ea54b.31175.564048','','0.009725');
CREATE TABLE calls (
                id INTEGER PRIMARY KEY, at REAL NOT NULL, project TEXT NOT NULL,
                worker TEXT NOT NULL, provider TEXT NOT NULL, backend TEXT NOT NULL,
                model TEXT NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
                cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
                reasoning INTEGER NOT NULL, cost_usd TEXT, source TEXT NOT NULL,
                status INTEGER NOT NULL, team TEXT NOT NULL DEFAULT '', held_usd TEXT);
INSERT INTO "calls" VALUES(1,1.79499060015440893177e+09,'/tmp/goent-v01/project','w-2gqyg','glm','moonshot','glm-4',800,90,200,0,10,'0.00102','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(2,1.79499060137137103078e+09,'/tmp/goent-v01/project','w-hvutx','glm','moonshot','glm-4',800,90,200,0,10,'0.00102','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(3,1.79499060311235833172e+09,'/tmp/goent-v01/project','w-ax7yj','glm','moonshot','glm-4',800,90,200,0,10,'0.00102','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(4,1.7949906031706790924e+09,'/tmp/goent-v01/project','w-g4wn2','glm','moonshot','glm-4',800,90,200,0,10,'0.00102','gateway',200,'','0.008278');
INSERT INTO "calls" VALUES(5,1.79499060336337661744e+09,'/tmp/goent-v01/project','w-aqska','glm','moonshot','glm-4',800,90,200,0,10,'0.00102','gateway',200,'','0.009725');
INSERT INTO "calls" VALUES(6,1.79499060343614649771e+09,'/tmp/goent-v01/project','w-a9fzw','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014893');
INSERT INTO "calls" VALUES(7,1.7949906034908845424e+09,'/tmp/goent-v01/project','w-a9fzw','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015054');
INSERT INTO "calls" VALUES(8,1.79499060354883146293e+09,'/tmp/goent-v01/project','w-a9fzw','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015143');
INSERT INTO "calls" VALUES(9,1.79499060363504838941e+09,'/tmp/goent-v01/project','w-a9fzw','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015162');
INSERT INTO "calls" VALUES(10,1.79499060373537063601e+09,'/tmp/goent-v01/project','w-tmurd','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014893');
INSERT INTO "calls" VALUES(11,1.794990603774251461e+09,'/tmp/goent-v01/project','w-tmurd','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015054');
INSERT INTO "calls" VALUES(12,1.79499060383388614652e+09,'/tmp/goent-v01/project','w-tmurd','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015143');
INSERT INTO "calls" VALUES(13,1.79499060398098564143e+09,'/tmp/goent-v01/project','w-ccddy','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014893');
INSERT INTO "calls" VALUES(14,1.79499060402360558503e+09,'/tmp/goent-v01/project','w-ccddy','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015054');
INSERT INTO "calls" VALUES(15,1.79499060406490230567e+09,'/tmp/goent-v01/project','w-ccddy','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015143');
INSERT INTO "calls" VALUES(16,1.7949906043203206062e+09,'/tmp/goent-v01/project','w-jxbt9','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014951');
INSERT INTO "calls" VALUES(17,1.7949906043650634288e+09,'/tmp/goent-v01/project','w-jxbt9','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015112');
INSERT INTO "calls" VALUES(18,1.79499060441574478149e+09,'/tmp/goent-v01/project','w-jxbt9','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015231');
INSERT INTO "calls" VALUES(19,1.79499060451434683804e+09,'/tmp/goent-v01/project','w-dz28d','glm','moonshot','glm-4',2000000,10,0,0,0,'2.00002','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(20,1794990604.62146,'/tmp/goent-v01/project','w-m6cwr','glm','moonshot','glm-4',95000,10,0,0,0,'0.09502','gateway',200,'','0.014893');
INSERT INTO "calls" VALUES(21,1.79499060466460347174e+09,'/tmp/goent-v01/project','w-m6cwr','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014974');
INSERT INTO "calls" VALUES(22,1.79499060472049236291e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.020916');
INSERT INTO "calls" VALUES(23,1.79499060474518752099e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.020972');
INSERT INTO "calls" VALUES(24,1.79499060477015066148e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021005');
INSERT INTO "calls" VALUES(25,1.79499060479506278038e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021038');
INSERT INTO "calls" VALUES(26,1.7949906048198976516e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021071');
INSERT INTO "calls" VALUES(27,1.79499060484458684925e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021104');
INSERT INTO "calls" VALUES(28,1.79499060487220573429e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021138');
INSERT INTO "calls" VALUES(29,1.79499060489865183828e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021171');
INSERT INTO "calls" VALUES(30,1794990604.92403,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021204');
INSERT INTO "calls" VALUES(31,1.79499060494833421706e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021237');
INSERT INTO "calls" VALUES(32,1.79499060497343659401e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.02127');
INSERT INTO "calls" VALUES(33,1.79499060499861121174e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021303');
INSERT INTO "calls" VALUES(34,1.79499060502359962469e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021336');
INSERT INTO "calls" VALUES(35,1.79499060504895043368e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021369');
INSERT INTO "calls" VALUES(36,1.79499060507390952113e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021402');
INSERT INTO "calls" VALUES(37,1.79499060509886813156e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021435');
INSERT INTO "calls" VALUES(38,1.79499060512410211565e+09,'/tmp/goent-v01/project','w-dd4sv','haiku','claude','claude-haiku',800,10,0,0,0,'0.00085','gateway',200,'','0.021468');
INSERT INTO "calls" VALUES(39,1.79499060523350119594e+09,'/tmp/goent-v01/project','w-fru9v','mine','local','small',100,20,0,0,0,'0.00014','opencode',200,'',NULL);
INSERT INTO "calls" VALUES(40,1.79499060530976510042e+09,'/tmp/goent-v01/project','w-fru9v','spare','deepseek','deepseek-coder',100,20,0,0,0,'0.00014','gateway',200,'','0.01504');
INSERT INTO "calls" VALUES(41,1.79499060540341758723e+09,'/tmp/goent-v01/project','w-8pfrw','spare','deepseek','deepseek-coder',100,20,0,0,0,'0.00014','gateway',200,'','0.014887');
INSERT INTO "calls" VALUES(42,1.79499062294745135304e+09,'/tmp/goent-v01/project','w-kyqdy','glm','moonshot','glm-4',800,90,200,0,10,'0.00102','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(43,1.79499062306898474693e+09,'/tmp/goent-v01/project','w-dw7dj','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(44,1.79499062321515083311e+09,'/tmp/goent-v01/project','w-dw7dj','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014959');
INSERT INTO "calls" VALUES(45,1.79499062336275911331e+09,'/tmp/goent-v01/project','w-87sh7','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(46,1.79499062347011780742e+09,'/tmp/goent-v01/project','w-wkapd','glm','moonshot','glm-4',0,0,0,0,0,NULL,'gateway',499,'','0.014894');
INSERT INTO "calls" VALUES(47,1.7949906235377640724e+09,'/tmp/goent-v01/project','w-vpegv','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(48,1.7949906238753423691e+09,'/tmp/goent-v01/project','w-ztafs','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014894');
INSERT INTO "calls" VALUES(49,1.79499062524778723714e+09,'/tmp/goent-v01/project','w-ztafs','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015023');
INSERT INTO "calls" VALUES(50,1.79499062539717125887e+09,'/tmp/goent-v01/project','w-aazyj','actor','actor','small',0,0,0,0,0,NULL,'estimate',200,'',NULL);
INSERT INTO "calls" VALUES(51,1.79499062543754339216e+09,'/tmp/goent-v01/project','w-aazyj','actor','actor','small',0,0,0,0,0,NULL,'estimate',200,'',NULL);
INSERT INTO "calls" VALUES(52,1.79499062554743218423e+09,'/tmp/goent-v01/project','w-qk8vs','actor','actor','small',0,0,0,0,0,'0.25','estimate',200,'',NULL);
INSERT INTO "calls" VALUES(53,1.79499062554781532285e+09,'/tmp/goent-v01/project','w-qk8vs','actor','actor','small',10,5,0,0,0,'0','estimate',200,'',NULL);
INSERT INTO "calls" VALUES(54,1.79499062564863920213e+09,'/tmp/goent-v01/project','w-4mx3x','actor','actor','small',0,0,0,0,0,NULL,'estimate',200,'',NULL);
INSERT INTO "calls" VALUES(55,1.79499062582524299622e+09,'/tmp/goent-v01/project','w-3namm','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009725');
INSERT INTO "calls" VALUES(56,1.79499062583285069467e+09,'/tmp/goent-v01/project','w-3namm','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009803');
INSERT INTO "calls" VALUES(57,1.79499062658606910701e+09,'/tmp/goent-v01/project','w-fya64','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.014951');
INSERT INTO "calls" VALUES(58,1.79499062660084438328e+09,'/tmp/goent-v01/project','w-2m36k','spare','deepseek','deepseek-coder',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.014954');
INSERT INTO "calls" VALUES(59,1.79499062667107200626e+09,'/tmp/goent-v01/project','w-fya64','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015163');
INSERT INTO "calls" VALUES(60,1.79499062669916415214e+09,'/tmp/goent-v01/project','w-2m36k','spare','deepseek','deepseek-coder',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015176');
INSERT INTO "calls" VALUES(61,1.79499062676359725002e+09,'/tmp/goent-v01/project','w-fya64','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015279');
INSERT INTO "calls" VALUES(62,1.79499062676400661471e+09,'/tmp/goent-v01/project','w-2m36k','spare','deepseek','deepseek-coder',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015301');
INSERT INTO "calls" VALUES(63,1.79499062699153923983e+09,'/tmp/goent-v01/project','w-h2y92','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.014955');
INSERT INTO "calls" VALUES(64,1.79499062701623845095e+09,'/tmp/goent-v01/project','w-h2y92','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015171');
INSERT INTO "calls" VALUES(65,1.79499062707733917235e+09,'/tmp/goent-v01/project','w-966vg','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.014953');
INSERT INTO "calls" VALUES(66,1.79499062707999658579e+09,'/tmp/goent-v01/project','w-h2y92','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015289');
INSERT INTO "calls" VALUES(67,1.79499062712592220305e+09,'/tmp/goent-v01/project','w-966vg','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015065');
INSERT INTO "calls" VALUES(68,1.79499062724547290802e+09,'/tmp/goent-v01/project','w-emrqa','haiku','claude','claude-haiku',100,20,0,0,0,'0.0002','gateway',200,'s-jrtnx','0.028838');
INSERT INTO "calls" VALUES(69,1.79499062730938696856e+09,'/tmp/goent-v01/project','w-emrqa','haiku','claude','claude-haiku',100,20,0,0,0,'0.0002','gateway',200,'s-jrtnx','0.02898');
INSERT INTO "calls" VALUES(70,1.79499062753875088692e+09,'/tmp/goent-v01/project','w-e8zwj','haiku','claude','claude-haiku',100,20,0,0,0,'0.0002','gateway',200,'s-jrtnx','0.028841');
INSERT INTO "calls" VALUES(71,1.79499062765950036053e+09,'/tmp/goent-v01/project','w-e8zwj','haiku','claude','claude-haiku',100,20,0,0,0,'0.0002','gateway',200,'s-jrtnx','0.028935');
INSERT INTO "calls" VALUES(72,1.79499062797318911549e+09,'/tmp/goent-v01/project','w-vm5se','spare','deepseek','deepseek-coder',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.014952');
INSERT INTO "calls" VALUES(73,1.79499062800584745407e+09,'/tmp/goent-v01/project','w-vm5se','spare','deepseek','deepseek-coder',100,20,0,0,0,'0.00014','gateway',200,'s-jrtnx','0.015071');
INSERT INTO "calls" VALUES(74,1.79499062847220635418e+09,'/tmp/goent-v01/project','w-txxew','glm','moonshot','glm-4',0,0,0,0,0,NULL,'gateway',499,'s-ux3ca','0.01495');
INSERT INTO "calls" VALUES(75,1.79499062900628423688e+09,'/tmp/goent-v01/project','w-dtxqe','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014908');
INSERT INTO "calls" VALUES(76,1.79499062919429898258e+09,'/tmp/goent-v01/project','w-vjfwu','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014908');
INSERT INTO "calls" VALUES(77,1.79499062966425609582e+09,'/tmp/goent-v01/project','w-744y2','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014938');
INSERT INTO "calls" VALUES(78,1.7949906296699919701e+09,'/tmp/goent-v01/project','w-5ffss','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014938');
INSERT INTO "calls" VALUES(79,1.79499062972525978091e+09,'/tmp/goent-v01/project','w-5ffss','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015042');
INSERT INTO "calls" VALUES(80,1.79499062972962141037e+09,'/tmp/goent-v01/project','w-744y2','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.015042');
INSERT INTO "calls" VALUES(81,1.79499063088333320617e+09,'/tmp/goent-v01/project','eval.says.328ae0c0','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014626');
INSERT INTO "calls" VALUES(82,1794990630.89894,'/tmp/goent-v01/project','eval.says.5144668b','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014626');
INSERT INTO "calls" VALUES(83,1.79499063111391425132e+09,'/tmp/goent-v01/project','eval.changes.323ac4c6','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014656');
INSERT INTO "calls" VALUES(84,1.79499063115267419813e+09,'/tmp/goent-v01/project','eval.changes.f9b1e477','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014656');
INSERT INTO "calls" VALUES(85,1.79499063119022870061e+09,'/tmp/goent-v01/project','eval.changes.323ac4c6','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014759');
INSERT INTO "calls" VALUES(86,1.79499063123685574528e+09,'/tmp/goent-v01/project','eval.changes.f9b1e477','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014759');
INSERT INTO "calls" VALUES(87,1.79499063397453260419e+09,'/tmp/goent-v01/project','w-buf4j','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014908');
INSERT INTO "calls" VALUES(88,1.79499063412679290769e+09,'/tmp/goent-v01/project','w-vdxey','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014908');
INSERT INTO "calls" VALUES(89,1.79499063460828924181e+09,'/tmp/goent-v01/project','w-dmkfg','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014938');
INSERT INTO "calls" VALUES(90,1.79499063462974858288e+09,'/tmp/goent-v01/project','w-qek4k','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014938');
INSERT INTO "calls" VALUES(91,1.79499063467877769469e+09,'/tmp/goent-v01/project','w-qek4k','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.01504');
INSERT INTO "calls" VALUES(92,1.79499063467906832692e+09,'/tmp/goent-v01/project','w-dmkfg','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.01504');
INSERT INTO "calls" VALUES(93,1.79499063588132619861e+09,'/tmp/goent-v01/project','eval.says.9a15cc1b','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014625');
INSERT INTO "calls" VALUES(94,1.79499063592669200898e+09,'/tmp/goent-v01/project','eval.says.cf182898','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014625');
INSERT INTO "calls" VALUES(95,1.79499063610975503925e+09,'/tmp/goent-v01/project','eval.changes.d7d95a82','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014655');
INSERT INTO "calls" VALUES(96,1.79499063615524959559e+09,'/tmp/goent-v01/project','eval.changes.28074863','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014655');
INSERT INTO "calls" VALUES(97,1.79499063619374036792e+09,'/tmp/goent-v01/project','eval.changes.d7d95a82','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014758');
INSERT INTO "calls" VALUES(98,1.79499063625146365163e+09,'/tmp/goent-v01/project','eval.changes.28074863','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.014758');
INSERT INTO "calls" VALUES(99,1.7949906386716685295e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009845');
INSERT INTO "calls" VALUES(100,1.79499063867554378508e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009927');
INSERT INTO "calls" VALUES(101,1.79499063868513202661e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009999');
INSERT INTO "calls" VALUES(102,1.79499063868937182427e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.010116');
INSERT INTO "calls" VALUES(103,1.79499063869457864761e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.010202');
INSERT INTO "calls" VALUES(104,1.79499063871405386922e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.010268');
INSERT INTO "calls" VALUES(105,1.79499063871755623819e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.008895');
INSERT INTO "calls" VALUES(106,1.79499063872261404987e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009807');
INSERT INTO "calls" VALUES(107,1.79499063872654986378e+09,'/tmp/goent-v01/project','agent-3a572550d9ae','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009895');
INSERT INTO "calls" VALUES(108,1.79499065138940334324e+09,'/tmp/goent-v01/killed','w-pzw2z','glm','moonshot','glm-4',100,20,0,0,0,'0.00014','gateway',200,'','0.009725');
CREATE TABLE reservations (
        project TEXT NOT NULL, worker TEXT NOT NULL, team TEXT NOT NULL, owner TEXT NOT NULL,
        usd TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY (project, worker)) WITHOUT ROWID;
INSERT INTO "reservations" VALUES('/tmp/goent-v01/killed','w-pzw2z','','killed-6408276ea54b.31175.564048','0.00028',107);
INSERT INTO "reservations" VALUES('/tmp/goent-v01/killed','w-rxymy','','killed-6408276ea54b.31175.564048','0.00014',107);
CREATE TABLE starts (
        id TEXT PRIMARY KEY, at REAL NOT NULL, backend TEXT NOT NULL, model TEXT NOT NULL,
        tokens INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "starts" VALUES('060a60b75f508427',1.7949906265983111858e+09,'deepseek','deepseek-coder',120);
INSERT INTO "starts" VALUES('06e4ce5011c959f4',1.7949906050220749378e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('0777d83e610802c3',1.79499063467514109607e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('0855a0ff6cb94d74',1.79499063871651124953e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('0a25095f14ea45c6',1.79499060348761725431e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('0d4e485ed7b7a79b',1.79499060441213560104e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('0d5cc204689fdf8f',1.79499063866866564748e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('0ef11e97a4bc9e70',1.79499063587590861317e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('13181112c083eab4',1.79499061173210477829e+09,'gone','away',10791);
INSERT INTO "starts" VALUES('15c3008b628a3e6d',1.79499060474388504029e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('1773dc0a871ec1b5',1.79499060431757521622e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('17c1f678ce15590c',1.79499062698913168902e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('18704923fe18409f',1.79499060362870097159e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('1ac8052f683c59dd',1.7949906266675169468e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('2066e9729b31e3cf',1.79499063872482228281e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('2806eed834c2936e',1.7949906513862888813e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('28548f53c845b960',1.79499060494672226908e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('28839d861dc2199a',1.79499060373226284985e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('2934f4863841090a',1.79499060402033853533e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('303ccea92a905f82',1.79499063619045639041e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('31e7634f1d3f6a9c',1.79499060504751658442e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('34236a0c0071e822',1.79499060014913630481e+09,'moonshot','glm-4',1100);
INSERT INTO "starts" VALUES('3682d21de77dc895',1.79499062900421571726e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('3a749cf7657a9a87',1.79499062724254918096e+09,'claude','claude-haiku',120);
INSERT INTO "starts" VALUES('3cc7e33b1a0143ef',1.79499063869331240651e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('3fd6195a60060be8',1.79499062294484686844e+09,'moonshot','glm-4',1100);
INSERT INTO "starts" VALUES('42126e19dadfa08a',1.79499062669644379609e+09,'deepseek','deepseek-coder',120);
INSERT INTO "starts" VALUES('435a05bfe8e76734',1.79499060461856818201e+09,'moonshot','glm-4',95010);
INSERT INTO "starts" VALUES('461e4ea6d54c466c',1.79499060499719047551e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('4743b52de2955863',1.79499063868807125091e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('4aec4b22ebb6e270',1.79499062387301397325e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('4cb3013f9cf49047',1.79499062965883469586e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('526ca6b24202c5cb',1.79499063123318696021e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('541ffcbbf2c64bfd',1.7949906053048348427e+09,'deepseek','deepseek-coder',120);
INSERT INTO "starts" VALUES('55c02ec445b6bd34',1.79499063114502429962e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('564f4290f1a43519',1794990623.45803,'moonshot','glm-4',10798);
INSERT INTO "starts" VALUES('56c112f8f25623b7',1.79499063467206263541e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('58ef8cc6d39b49ef',1.79499060316926312445e+09,'moonshot','glm-4',1100);
INSERT INTO "starts" VALUES('5a9376209bdf3077',1.79499060672534775737e+09,'gone','away',10791);
INSERT INTO "starts" VALUES('648de2f1c7cf4eb1',1.79499062797040843963e+09,'deepseek','deepseek-coder',120);
INSERT INTO "starts" VALUES('657bc43b9164ff2d',1.79499063118695020672e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('660cc741a30e17dc',1.79499060466067481044e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('681611a256db3435',1.79499060136917543408e+09,'moonshot','glm-4',1100);
INSERT INTO "starts" VALUES('690226e58e0d142d',1.79499062335546398158e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('6aeb6346ecbf6f85',1.79499062730688238144e+09,'claude','claude-haiku',120);
INSERT INTO "starts" VALUES('6c976de677d12b49',1.79499060539635944366e+09,'gone','away',10791);
INSERT INTO "starts" VALUES('6f85af66bd463cd2',1.7949906252440681457e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('733e31368cf40588',1.79499060383141565322e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('7b195c6078ee4f16',1.79499060406275105479e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('7bd01badccbd2f34',1.79499060492231202125e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('7d87c767c3aa529a',1.79499060435982298847e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('7fe0bd007e096baa',1.79499063087781834599e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('82a34d3bead03199',1.7949906048432233334e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('84c966928acc6e5c',1.79499063871274614333e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('86faec5378fc1610',1.79499062753598356248e+09,'claude','claude-haiku',120);
INSERT INTO "starts" VALUES('8749a01c66d9802f',1.7949906039779586792e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('8bf41302b177e1b4',1.79499063397017550461e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('9253fed5fd420cb5',1.79499060507249379161e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('958b0a613c021d13',1.79499060343328452112e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('960823c1c4a31f96',1.79499060487059211728e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('9cae013c657b7af2',1.79499062707217884064e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('9fc8bb937ecb7762',1.79499062701399636271e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('a2336eb9c2c4e30e',1.79499062765534329409e+09,'claude','claude-haiku',120);
INSERT INTO "starts" VALUES('a89de08d4a770e4c',1.79499063412482738489e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('a968b3809c22a2c6',1.79499062306547808648e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('ab0c5a680bfa2c04',1.79499060451133418082e+09,'moonshot','glm-4',2000010);
INSERT INTO "starts" VALUES('ac34bb65c5d82292',1.79499062353357362745e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('ac3794f712beeeec',1.79499062286939716336e+09,'gone','away',10791);
INSERT INTO "starts" VALUES('b0cd0b8e6c225358',1.79499060548726391793e+09,'gone','away',10791);
INSERT INTO "starts" VALUES('b5800572af05a8b2',1.7949906345723764897e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('b6b5041cd58c642e',1.79499060540185976023e+09,'deepseek','deepseek-coder',120);
INSERT INTO "starts" VALUES('b79c7fe9ded2ffe1',1.79499062966749358175e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('b849503bc4726393',1.79499062675371551514e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('b86893b873090317',1.79499063872134828568e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('bcac6ece173053ee',1.79499060509758138655e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('bdb23f893126f4f2',1.79499060489697742463e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('bf22b474acbe4867',1.79499060476862382887e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('bf968d957f00e748',1.79499063610548591609e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('bf9ee9f0e94ebf35',1.79499060354575204847e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('c0f41771333123bc',1.79499065132618045807e+09,'moonshot','glm-4',5629);
INSERT INTO "starts" VALUES('c12923d704f99081',1.79499060512241339683e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('c4cbeaa09dc1468d',1794990626.75997,'deepseek','deepseek-coder',120);
INSERT INTO "starts" VALUES('c7c36ef2b0cd1014',1.79499060336149215697e+09,'moonshot','glm-4',1100);
INSERT INTO "starts" VALUES('c80f05abe30ac97d',1.7949906280022056103e+09,'deepseek','deepseek-coder',120);
INSERT INTO "starts" VALUES('cabfbf1f375d2619',1.79499063089699435235e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('cb4048a779c55543',1.7949906047185742855e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('cedd58808eef8498',1.79499062845217800137e+09,'moonshot','glm-4',10854);
INSERT INTO "starts" VALUES('cf736a7205c71633',1.79499060497200489043e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('d07cabb96e672248',1.79499060376776504513e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('d36bb49fe583747b',1.79499063867415475847e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('d48443553bf0c81e',1794990604.79363,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('d5448430dbfc8198',1.79499063624793744084e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('d62fd2b5d0764263',1.794990629721114397e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('db4f7deadb8dfd59',1.79499063615099740034e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('dd2e834e5fea8df1',1.794990626582490921e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('e174970d8737934f',1.79499063111074662205e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('e211ac00c35a5225',1.79499062917657828332e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('e4395a416b06a92b',1.79499062583112645153e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('e90b13e30420538a',1.79499063457251310351e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('ea713c5fc0c3973a',1.79499062707744431498e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('eca2e404c4a296eb',1.79499060481838202483e+09,'claude','claude-haiku',810);
INSERT INTO "starts" VALUES('efc8076344ee8e8e',1.79499060311020588879e+09,'moonshot','glm-4',1100);
INSERT INTO "starts" VALUES('f11fe2fac41ed4f2',1.79499062712302160258e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('f18e6c243ca3854d',1.7949906297243998051e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('f26c37f9a2b9102c',1.7949906232114322185e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('f5578ba89cf65565',1.79499063592307686806e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('f561c10ff7fb1805',1.79499063868379878997e+09,'moonshot','glm-4',120);
INSERT INTO "starts" VALUES('f6a225fdbf84023c',1.79499062582285666463e+09,'moonshot','glm-4',120);
CREATE TABLE sums (
        scope TEXT NOT NULL, key TEXT NOT NULL, usd TEXT NOT NULL, unknown INTEGER NOT NULL,
        upto INTEGER NOT NULL, PRIMARY KEY (scope, key)) WITHOUT ROWID;
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/killed
w-pzw2z','0',0,107);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/killed
w-rxymy','0',0,107);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
agent-3a572550d9ae','0.00112',0,106);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.changes.28074863','0.00014',0,97);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.changes.323ac4c6','0.00014',0,84);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.changes.d7d95a82','0.00014',0,96);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.changes.f9b1e477','0.00014',0,85);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.says.328ae0c0','0',0,80);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.says.5144668b','0',0,81);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.says.9a15cc1b','0',0,92);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
eval.says.cf182898','0',0,93);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-2m36k','0.00028',0,60);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-3namm','0.00014',0,55);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-5ffss','0.00014',0,78);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-744y2','0.00014',0,78);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-87sh7','0',0,44);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-8pfrw','0',0,40);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-966vg','0.00014',0,66);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-a9fzw','0.00042',0,8);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-aqska','0',0,4);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-ax7yj','0',0,2);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-buf4j','0',0,86);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-ccddy','0.00028',0,14);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-dd4sv','0.01360',0,37);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-dmkfg','0.00014',0,90);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-dtxqe','0',0,74);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-dw7dj','0.00014',0,43);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-dz28d','2.00002',0,19);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-e8zwj','0.0002',0,70);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-emrqa','0.0002',0,68);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-fru9v','0.00014',0,39);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-fya64','0.00028',0,60);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-g4wn2','0',0,3);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-h2y92','0.00028',0,64);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-hvutx','0',0,1);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-jxbt9','0.00028',0,17);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-kyqdy','0',0,41);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-m6cwr','0.09502',0,20);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-qek4k','0.00014',0,90);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-s5fnm','0',0,73);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-shqqk','0',0,41);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-tmurd','0.00028',0,11);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-txxew','0',0,73);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-vdxey','0',0,87);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-vjfwu','0',0,75);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-vm5se','0.00014',0,72);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-vpegv','0',0,46);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-wkapd','0',0,45);
INSERT INTO "sums" VALUES('task','/tmp/goent-v01/project
w-ztafs','0.00014',0,48);
CREATE TABLE under_way (
                id TEXT PRIMARY KEY, at REAL NOT NULL, project TEXT NOT NULL,
                worker TEXT NOT NULL, provider TEXT NOT NULL, backend TEXT NOT NULL,
                model TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "under_way" VALUES('c0f41771333123bc',1.79499065132618045807e+09,'/tmp/goent-v01/killed','w-rxymy','glm','moonshot','glm-4');
CREATE INDEX calls_of_project ON calls (project, at);
CREATE INDEX calls_of_worker ON calls (worker);
CREATE INDEX calls_of_team ON calls (team) WHERE team != '';
CREATE INDEX starts_of_model ON starts (backend, model, at);
COMMIT;
PRAGMA user_version = 3;
