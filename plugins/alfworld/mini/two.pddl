; put two soapbar in garbagecan.
; One bar lies open, one in a cabinet; two garbage cans, and both bars must be in the same one.
(define (problem mini_two)
(:domain alfred)
(:objects
    agent1 - agent
    SoapBar_bar_1 SoapBar_bar_2 Candle_bar_1 - object
    Toilet_bar_1 Cabinet_bar_1 GarbageCan_bar_1 GarbageCan_bar_2 - receptacle
    loc_bar_0 loc_bar_1 loc_bar_2 loc_bar_3 - location
    SoapBarType CandleType - otype
    ToiletType CabinetType GarbageCanType - rtype)
(:init
    (atLocation agent1 loc_bar_0)
    (receptacleAtLocation Toilet_bar_1 loc_bar_1) (receptacleType Toilet_bar_1 ToiletType)
    (receptacleAtLocation Cabinet_bar_1 loc_bar_2) (receptacleType Cabinet_bar_1 CabinetType) (openable Cabinet_bar_1)
    (receptacleAtLocation GarbageCan_bar_1 loc_bar_2) (receptacleType GarbageCan_bar_1 GarbageCanType)
    (receptacleAtLocation GarbageCan_bar_2 loc_bar_3) (receptacleType GarbageCan_bar_2 GarbageCanType)
    (objectType SoapBar_bar_1 SoapBarType) (pickupable SoapBar_bar_1) (cleanable SoapBar_bar_1)
    (objectType SoapBar_bar_2 SoapBarType) (pickupable SoapBar_bar_2) (cleanable SoapBar_bar_2)
    (objectType Candle_bar_1 CandleType) (pickupable Candle_bar_1) (toggleable Candle_bar_1)
    (inReceptacle SoapBar_bar_1 Toilet_bar_1) (objectAtLocation SoapBar_bar_1 loc_bar_1)
    (inReceptacle SoapBar_bar_2 Cabinet_bar_1) (objectAtLocation SoapBar_bar_2 loc_bar_2)
    (inReceptacle Candle_bar_1 Toilet_bar_1) (objectAtLocation Candle_bar_1 loc_bar_1)
    (canContain ToiletType SoapBarType) (canContain ToiletType CandleType)
    (canContain CabinetType SoapBarType) (canContain CabinetType CandleType)
    (canContain GarbageCanType SoapBarType))
(:goal (and (exists (?r - receptacle) (exists (?o1 - object)
    (and (objectType ?o1 SoapBarType) (receptacleType ?r GarbageCanType) (inReceptacle ?o1 ?r)
         (exists (?o2 - object)
             (and (not (= ?o1 ?o2)) (objectType ?o2 SoapBarType) (receptacleType ?r GarbageCanType)
                  (inReceptacle ?o2 ?r)))))))))
